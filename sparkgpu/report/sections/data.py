"""The table: its splits, features and the columns left out."""

from __future__ import annotations

from sparkgpu.report import tables
from sparkgpu.report.inputs import Inputs


def content(run: Inputs) -> dict[str, object]:
    """The values of the templates."""
    schema = run.schema
    refused = f" ({schema.rows_refused:,} refused: no target value)" if schema.rows_refused else ""
    return {
        "schema": schema,
        "rows": f"{schema.rows:,}{refused}",
        "splits": tables.splits(schema),
        "dropped": tables.dropped(schema),
        "features": tables.features(schema),
    }
