"""The demo's table is real and complete, and holds nothing that is known only after departure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparkgpu.core.table.demo import DEMO_TARGET
from sparkgpu.core.table.demo_table import write_demo


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    return pq.read_table(write_demo(tmp_path_factory.mktemp("demo")))


def test_it_holds_every_flight_that_arrived_and_whether_it_was_late(table: pa.Table) -> None:
    assert (table.num_rows, table.num_columns) == (327_346, 30)
    assert table["tailnum"][:3].to_pylist() == ["N14228", "N24211", "N619AA"]  # in the package's order
    assert table.schema.field("flight").type == pa.string()  # a name and not a quantity
    assert table.column_names[-1] == DEMO_TARGET == "late"
    assert table.schema.field(DEMO_TARGET).type == pa.bool_()
    assert (table[DEMO_TARGET].null_count, pc.sum(table[DEMO_TARGET]).as_py()) == (0, 77_630)


def test_it_holds_no_column_known_only_after_departure(table: pa.Table) -> None:
    assert set(table.column_names) == {
        "month", "day", "sched_dep_time", "sched_arr_time", "carrier", "flight", "tailnum", "origin", "dest",
        "distance", "hour", "minute", "time_hour",
        "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib",
        "plane_year", "plane_type", "manufacturer", "model", "engines", "seats", "engine",
        "late",
    }  # fmt: skip


def test_weather_and_plane_are_those_of_the_flight(table: pa.Table) -> None:
    for origin in ("EWR", "JFK", "LGA"):
        there = table.filter(pc.equal(table["origin"], origin))
        per_hour = there.group_by("time_hour").aggregate([("temp", "count_distinct")])
        assert pc.max(per_hour["temp_count_distinct"]).as_py() == 1
    per_plane = table.group_by("tailnum").aggregate([("manufacturer", "count_distinct")])
    assert pc.max(per_plane["manufacturer_count_distinct"]).as_py() == 1
    assert 0 < table["temp"].null_count < 0.01 * table.num_rows
    assert 0 < table["seats"].null_count < 0.2 * table.num_rows
