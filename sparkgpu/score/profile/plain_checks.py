"""The checks that need only the columns' figures: ids, gaps and rare classes.

What the preparation left out of the table (ids, constants, columns without values) is in the schema with its
reason and is not looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkgpu.core.rundir.profile import CheckResult, ColumnProfile
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import counted, listed
from sparkgpu.score.profile.columns import Column
from sparkgpu.score.profile.sample import Sample

_ID_ROWS = 50
_ID_SHARE = 0.98
_ID_LEVEL_SHARE = 0.5
_NO_USE = 0.01
_IN_ORDER = 0.999
_MOST_MISSING = 0.99
_FEWEST_OF_CLASS = 10


def id_like(columns: Sequence[Column], profiles: Sequence[ColumnProfile], train: Sample) -> CheckResult:
    """Whole numbers that are nearly all different and explain nothing or count the rows; rare categories."""
    both = zip(columns, profiles, strict=True)
    found = [column.title for column, profile in both if _is_id(column, profile, train)]
    evidence = "No feature has a value of its own in nearly every row without explaining the target."
    if found:
        evidence = (
            f"Nearly every row has a value of its own in {listed(found)}, which explains nothing of the "
            "target by itself or follows the order of the rows. Leave it out with data.ignore if it is an id."
        )
    return CheckResult(name="id-like columns", passed=not found, evidence=evidence, columns=tuple(found))


def _is_id(column: Column, profile: ColumnProfile, train: Sample) -> bool:
    from scipy.stats import spearmanr

    values_N = column.present("train")
    if len(values_N) < _ID_ROWS:
        return False
    useless = profile.alone is not None and profile.alone < _NO_USE
    if column.kind == "categorical":
        return profile.distinct >= _ID_LEVEL_SHARE * len(values_N) and useless
    if profile.distinct < _ID_SHARE * len(values_N) or not (values_N == np.floor(values_N)).all():
        return False
    if useless:
        return True
    order_N = train.rows.row_id_N[np.isfinite(column.values["train"])]
    return abs(float(spearmanr(values_N, order_N).statistic)) >= _IN_ORDER


def gaps(profiles: Sequence[ColumnProfile]) -> CheckResult:
    """Features without a value in nearly all training rows."""
    some = sorted((profile for profile in profiles if profile.missing), key=lambda profile: -profile.missing)
    empty = [profile for profile in some if profile.missing >= _MOST_MISSING]
    if empty:
        parts = (f"{profile.column} ({100 * profile.missing:.1f} %)" for profile in empty)
        evidence = f"Nearly all training rows have no value in {listed(parts)}."
    elif some:
        evidence = (
            f"{len(some):,} of {counted(len(profiles), 'feature')} have missing values, most of them "
            f"{some[0].column}: {100 * some[0].missing:.1f} % of the training rows."
        )
    else:
        evidence = "No feature has missing values in the training rows."
    columns = tuple(profile.column for profile in empty)
    return CheckResult(name="gaps", passed=not empty, evidence=evidence, columns=columns)


def rare_classes(schema: TableSchema, train: Sample) -> CheckResult:
    """Classes with fewer than ten training rows; the target must have classes."""
    counts = np.bincount(train.rows.label_N, minlength=len(schema.classes))
    rows = np.rint(counts * (train.total / train.size)).astype(int)
    rare = [code for code in np.argsort(rows, kind="stable").tolist() if rows[code] < _FEWEST_OF_CLASS]
    about = "about " if train.size < train.total else ""
    if rare:
        parts = (f"{schema.classes[code]} ({about}{rows[code]})" for code in rare)
        evidence = (
            f"Fewer than {_FEWEST_OF_CLASS} training rows: {listed(parts)}. No model can learn them well."
        )
    else:
        least = int(rows.argmin())
        how_many = f"{about}{counted(int(rows[least]), 'training row')}"
        evidence = f"The rarest class, {schema.classes[least]}, has {how_many}."
    return CheckResult(
        name="rare classes", passed=not rare, evidence=evidence, columns=(schema.target,) if rare else ()
    )
