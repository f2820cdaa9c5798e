"""The formats of tables, with one entry each."""

from __future__ import annotations

from dataclasses import dataclass

from sparkgpu.core.config.registry.entries import Entry, Registry


@dataclass(frozen=True, kw_only=True)
class FormatEntry(Entry):
    """A format. `endings` are the endings of its files' names, in small letters.

    `load` names the function that opens it in Spark (`sparkgpu.prepare.spark_source.Opener`). `read` names
    the function that reads a local table without Spark, for predictions, if there is one
    (`sparkgpu.predict.readers.Reader`).
    """

    endings: tuple[str, ...]
    read: str | None = None


_OPENERS = "sparkgpu.prepare.spark_source"
_READERS = "sparkgpu.predict.readers"

FORMATS: Registry[FormatEntry] = Registry(
    "sparkgpu.formats",
    FormatEntry,
    (
        FormatEntry(
            name="parquet",
            load=f"{_OPENERS}:open_typed",
            endings=(".parquet", ".pq"),
            read=f"{_READERS}:read_typed",
        ),
        FormatEntry(
            name="csv",
            load=f"{_OPENERS}:open_csv",
            endings=(".csv", ".tsv"),
            read=f"{_READERS}:read_csv",
        ),
        FormatEntry(
            name="orc",
            load=f"{_OPENERS}:open_typed",
            endings=(".orc",),
            read=f"{_READERS}:read_typed",
        ),
        FormatEntry(
            name="json",
            load=f"{_OPENERS}:open_json",
            endings=(".json", ".jsonl", ".ndjson"),
            read=f"{_READERS}:read_json_lines",
        ),
    ),
)
