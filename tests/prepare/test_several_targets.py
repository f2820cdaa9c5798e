"""One preparation for several targets: the same rows, split and features, and labels of each alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ways import WAYS

from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import read_schema
from sparkgpu.prepare.encoding import Encoder, load_made

ROWS = 300


def homes() -> dict[str, Any]:
    """A price and whether it sold, each with gaps; some rows have neither."""
    random = np.random.default_rng(5)
    area, town = random.uniform(20, 200, ROWS), random.choice(["east", "west"], ROWS)
    price = np.where(np.arange(ROWS) % 5 == 0, None, 3 * area + random.normal(0, 9, ROWS))
    sold = np.where(area + random.normal(0, 20, ROWS) > 80, "yes", "no").astype(object)
    sold[::7] = None
    return {"area": area, "town": town, "price": pa.array(price, pa.float64()), "sold": pa.array(sold)}


@pytest.mark.parametrize("by", WAYS)
def test_a_row_counts_for_each_target_it_has_and_no_target_is_a_feature(
    prepare: Callable[..., Any], by: str
) -> None:
    columns = homes()
    whole = prepare(columns, ["sold", "price"], by=by)
    has = {name: columns[name].is_valid().to_numpy(zero_copy_only=False) for name in ("price", "sold")}
    assert whole.schema.targets == ("sold", "price")
    assert [feature.source for feature in whole.schema.features] == ["area", "town"]
    assert whole.schema.rows == (has["price"] | has["sold"]).sum() < ROWS
    split_of = dict(zip(*(whole.stored()[name] for name in ("row_id", "split")), strict=True))
    for name, other in (("price", "sold"), ("sold", "price")):
        paths = whole.paths.target(name)
        schema = read_schema(paths)
        assert (schema.target, schema.other_targets) == (name, (other,))
        assert schema.features == whole.schema.features
        seen = []
        for split in ("train", "valid", "test"):
            rows = read_rows(paths, schema, split)
            seen += rows.row_id_N.tolist()
            assert {split_of[row] for row in rows.row_id_N.tolist()} == {split}
            found = rows.label_N if name == "price" else np.array(schema.classes)[rows.label_N]
            assert found.tolist() == columns[name].take(pa.array(rows.row_id_N)).to_pylist()
        assert sorted(seen) == np.flatnonzero(has[name]).tolist()
        assert schema.rows == len(seen) and schema.rows_refused == ROWS - len(seen)
    rows = read_rows(whole.paths, whole.schema, "train")
    assert rows.label_N.shape == (len(rows.row_id_N), 2)
    assert (np.isnan(rows.label_N[:, 1]) == ~has["price"][rows.row_id_N]).all()


def test_the_first_targets_classes_cut_the_rows(prepare: Callable[..., Any]) -> None:
    columns = homes()
    whole = prepare(columns, ["sold", "price"]).stored()
    for place, name in enumerate(["no", "yes"]):
        own = whole[whole["label"].str[0] == place]
        assert (own["split"] == "test").mean() == pytest.approx(0.15, abs=0.01), name


def test_a_class_that_no_training_row_has_is_refused_by_name(
    prepare: Callable[..., Any], refused: Callable[..., str]
) -> None:
    columns = homes()
    rare = ["common"] * ROWS
    split = ["train" if row % 4 else ("valid" if row % 8 else "test") for row in range(ROWS)]
    rare[0] = rare[8] = "rare"
    told = refused(
        prepare, {**columns, "kind": rare, "part": split}, ["price", "kind"],
        {"split.kind": "column", "split.column": "part"},
    )  # fmt: skip
    assert told == (
        "target 'kind': no training row has the class 'rare', since the first target alone decides the "
        "split. Name 'kind' first, or merge rare classes."
    )


def test_a_text_has_estimates_for_each_target(prepare: Callable[..., Any]) -> None:
    columns = homes()
    random = np.random.default_rng(1)
    words = np.array([f"word{number}" for number in range(30)])
    columns["about"] = [" ".join(random.choice(words, 12)) for _ in range(ROWS)]
    whole = prepare(columns, ["sold", "price"], {"data.roles": {"about": "text"}})
    titles = [feature.title for feature in whole.schema.features]
    assert titles[2:5] == ["about (estimate of sold)", "about (estimate of price)", "about (topic 1)"]


def test_a_target_named_as_another_column_of_the_run_is_refused(
    prepare: Callable[..., Any], refused: Callable[..., str]
) -> None:
    told = refused(prepare, homes(), ["sold", "price"], {"data.weight": "price"})
    assert told == "data.weight 'price' is the target. Choose another column, or another target."


def test_the_mean_of_each_target_is_a_feature_of_many_levels_and_no_row_sees_its_own(
    prepare: Callable[..., Any],
) -> None:
    columns = homes()
    random = np.random.default_rng(2)
    columns["street"] = np.array([f"s{number}" for number in range(12)])[random.integers(0, 12, ROWS)]
    whole = prepare(columns, ["sold", "price"], {"data.max_categories": 5})
    titles = [feature.title for feature in whole.schema.features]
    assert titles[-2:] == ["street (mean sold)", "street (mean price)"]
    stored, price = whole.stored(), columns["price"].to_pandas()
    own = stored["split"] == "train"
    outside = stored[~own]["street_mean_price"]
    assert outside.between(price.min(), price.max()).all()
    for name in ("sold", "price"):
        alone = whole.paths.target(name)
        rows = read_rows(alone, read_schema(alone), "test")
        place = [feature.name for feature in read_schema(alone).numeric].index("street_mean_price")
        expected = stored.set_index("row_id").loc[rows.row_id_N, "street_mean_price"]
        np.testing.assert_array_equal(rows.numeric_NF[:, place], expected)
        made = load_made(alone.table, read_schema(alone).features)
        encoded = Encoder(read_schema(alone), made).rows(
            pa.RecordBatch.from_pydict({name: columns[name] for name in ("area", "town", "street")})
        )
        np.testing.assert_array_equal(encoded.numeric_NF[rows.row_id_N, place], expected)
