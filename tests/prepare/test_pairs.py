"""Latitude and longitude as a pair: which columns are one, who makes its features, who gets the credit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ways import WAYS

from sparkgpu.core.table.rows import read_rows
from sparkgpu.predict.explain.columns import Places, user_columns
from sparkgpu.predict.explain.contributions import sampling
from sparkgpu.predict.explain.sample import draw_sample
from sparkgpu.prepare.encoding import Encoder
from sparkgpu.prepare.pairs import coordinates

ROWS = 300
_drawn = np.random.default_rng(5)
PLACES = {
    "size": _drawn.normal(size=ROWS),
    "lat": np.where(np.arange(ROWS) == 7, np.nan, _drawn.uniform(30, 50, ROWS)),
    "long": pa.array([f"{value:.4f}" for value in _drawn.uniform(-120, -70, ROWS)]),
    "y": _drawn.normal(size=ROWS),
}
ADDED = ["lat (+ long)", "lat (− long)"]


@pytest.mark.parametrize(
    ("columns", "pairs"),
    [
        (["Longitude", "x", "Latitude"], [("Latitude", "Longitude")]),
        (["lat", "lon", "late", "longest"], [("lat", "lon")]),
        (["a_lat", "a_lng", "b lat", "b long"], [("a_lat", "a_lng"), ("b lat", "b long")]),
        (["pickupLatitude", "pickupLongitude", "dropLatitude"], [("pickupLatitude", "pickupLongitude")]),
        (["flat", "long", "plateau", "oblong"], []),
    ],
)  # fmt: skip
def test_a_pair_is_known_by_its_names(columns, pairs) -> None:
    assert coordinates(columns) == pairs


@pytest.mark.parametrize("by", WAYS)
def test_a_pair_adds_its_sum_and_its_difference(prepare, request, tmp_path, by) -> None:
    pq.write_table(pa.table(PLACES), tmp_path / "t.parquet")
    found = prepare(tmp_path / "t.parquet", "y", by=by)
    assert list(found.kinds) == ["size", "lat", "long", *ADDED]
    assert f"{ADDED[0]}: the sum and the difference of the two are features as well" in found.schema.notes
    stored = found.stored()
    lat_N, long_N = np.float32(PLACES["lat"]), np.float32(PLACES["long"].cast("double"))
    np.testing.assert_array_equal(stored["lat_plus_long"], lat_N + long_N)
    np.testing.assert_array_equal(stored["lat_minus_long"], lat_N - long_N)
    names = [feature.name for feature in found.schema.features]
    new = Encoder(found.schema).rows(pa.table(PLACES))
    np.testing.assert_array_equal(new.numeric_NF, stored[names])
    if by == "spark":
        spark = request.getfixturevalue("spark")
        vectors_NF = found.vectors(spark.read.parquet(str(tmp_path / "t.parquet")))
        np.testing.assert_array_equal(vectors_NF, stored[names])


@pytest.mark.parametrize(
    "rules", [{"rules.monotone": {"lat": "increasing"}}, {"rules.interactions": [["long", "size"]]}]
)
def test_a_column_that_a_rule_names_is_in_no_pair(prepare, rules) -> None:
    assert list(prepare(PLACES, "y", rules).kinds) == ["size", "lat", "long"]


def test_a_withheld_column_is_in_no_pair(prepare) -> None:
    assert list(prepare(PLACES, "y", {"rules.without": ["long"]}).kinds) == ["size", "lat"]


def test_who_asks_a_model_about_another_latitude_gets_its_sums_too(prepare) -> None:
    found = prepare(PLACES, "y")
    _, lat, long, plus, minus = range(5)
    sample = draw_sample(found.paths, found.schema, 40, seed=1)
    changed_NF = sample.changed(np.arange(20), Places(numeric=(lat,)), np.arange(20, 40)).numeric_NF
    own_NF = sample.rows.numeric_NF
    np.testing.assert_array_equal(changed_NF[:, lat], own_NF[20:40, lat])
    np.testing.assert_array_equal(changed_NF[:, plus], own_NF[20:40, lat] + own_NF[:20, long])
    np.testing.assert_array_equal(changed_NF[:, minus], own_NF[20:40, lat] - own_NF[:20, long])
    assert [column.name for column in user_columns(found.schema)] == ["size", "lat", "long"]


def test_each_column_of_a_pair_gets_what_it_added(prepare) -> None:
    found = prepare({**PLACES, "lat": np.nan_to_num(PLACES["lat"], nan=40.0)}, "y")
    plus = [feature.name for feature in found.schema.numeric].index("lat_plus_long")
    columns = ("size", "lat", "long")
    explain = sampling(found.paths, found.schema, columns, lambda rows: rows.numeric_NF[:, plus], 8)
    rows = read_rows(found.paths, found.schema, "test").part(slice(4))
    why = explain(rows)
    assert (why.added_NGM[..., 0] == 0).all()
    away_NM = rows.numeric_NF[:, 1:3] - (why.added_NGM[:, 0, 1:])
    np.testing.assert_allclose(away_NM, np.tile(away_NM[0], (4, 1)), rtol=1e-5)  # the background's means
    np.testing.assert_allclose(away_NM.sum(axis=1), why.base_NG[:, 0], rtol=1e-5)
