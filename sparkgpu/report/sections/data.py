"""The table: the checks of it, its splits, its columns with their distributions, and their associations.

Without ``profile.json`` (a short report) only what the schema says: splits, columns left out and features.
"""

from __future__ import annotations

from sparkgpu.report import column_rows, tables
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.pictures.associations import associations
from sparkgpu.rundir.files import read_record
from sparkgpu.rundir.profile import TableProfile
from sparkgpu.words import counted, listed


def content(run: Inputs) -> dict[str, object]:
    """The values of the templates."""
    schema = run.schema
    refused = f" ({schema.rows_refused:,} refused: no target value)" if schema.rows_refused else ""
    profile = read_record(run.paths.profile, TableProfile) if run.paths.profile.is_file() else None
    return {
        "schema": schema,
        "rows": f"{schema.rows:,}{refused}",
        "splits": tables.splits(schema),
        "dropped": tables.dropped(schema),
        "features": tables.features(schema),
        "profile": profile,
        "checked": _checked(profile) if profile else "",
        "columns": column_rows.column_rows(profile) if profile else [],
        "open_columns": column_rows.OPEN_COLUMNS,
        "size": (column_rows.WIDTH, column_rows.HEIGHT),
        "about": _about(profile) if profile else "",
        "associations": associations(profile.associations, len(profile.columns)) if profile else None,
    }


def _checked(profile: TableProfile) -> str:
    failed = [check.name for check in profile.checks if not check.passed]
    if not failed:
        return f"All {len(profile.checks)} checks of the table passed."
    return f"{len(failed)} of {counted(len(profile.checks), 'check')} of the table failed: {listed(failed)}."


def _about(profile: TableProfile) -> str:
    """What the figures of the columns are of."""
    train = profile.splits["train"]
    part = f"{train.looked_at:,} evenly spaced ones of " if train.looked_at < train.rows else "the "
    shown = ""
    if len(profile.columns) > column_rows.MOST_COLUMNS:
        shown = (
            f" These are the {column_rows.MOST_COLUMNS} features of {len(profile.columns):,} that belong to "
            "the target most; profile.json has all."
        )
    return (
        f"Figures of {part}{train.rows:,} training rows. “With the target” is the association of the picture "
        "below. “Alone” is how much of the target the column explains by itself: the share of the log loss "
        f"of classes, or of the squared error, that it takes away on test rows.{shown}"
    )
