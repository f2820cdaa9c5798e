"""The formats of tables, with one entry each."""

from __future__ import annotations

from dataclasses import dataclass

from sparkgpu.config.registry.entries import Entry, Registry


@dataclass(frozen=True, kw_only=True)
class FormatEntry(Entry):
    """A format; `load` names the function that opens it (`sparkgpu.prepare.formats.opening.Opener`).

    `endings` are the endings of its files' names, in small letters. A format is `is_typed` if its files
    contain the types of their columns and are compressed inside; for other formats Spark reads every row to
    infer the types. If Spark does not read the files itself (`by_spark`), the position of a row in them is
    unknown, so rows are ordered by their content, like those of a catalog table. `read` names the function
    that reads a local table without Spark, for predictions (`sparkgpu.predict.readers.reading.Reader`; None:
    there is none).
    """

    endings: tuple[str, ...]
    is_typed: bool = False
    by_spark: bool = True
    read: str | None = None


_PACKAGE = "sparkgpu.prepare.formats"
_READERS = "sparkgpu.predict.readers"

FORMATS: Registry[FormatEntry] = Registry(
    "sparkgpu.formats",
    FormatEntry,
    (
        FormatEntry(
            name="parquet",
            load=f"{_PACKAGE}.typed:open_typed",
            endings=(".parquet", ".pq"),
            is_typed=True,
            read=f"{_READERS}.parquet:read_parquet",
        ),
        FormatEntry(
            name="csv",
            load=f"{_PACKAGE}.csv_files:open_csv",
            endings=(".csv", ".tsv"),
            read=f"{_READERS}.csv_files:read_csv",
        ),
        FormatEntry(
            name="orc",
            load=f"{_PACKAGE}.typed:open_typed",
            endings=(".orc",),
            is_typed=True,
            read=f"{_READERS}.orc:read_orc",
        ),
        FormatEntry(
            name="json",
            load=f"{_PACKAGE}.json_lines:open_json",
            endings=(".json", ".jsonl", ".ndjson"),
            read=f"{_READERS}.json_lines:read_json_lines",
        ),
    ),
)
