"""The notes for the user on the table: what counts as missing, which texts are read as numbers, and more."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sparkgpu.core.config.keys import DataConfig
from sparkgpu.core.table.schema import Feature
from sparkgpu.core.words import listed
from sparkgpu.prepare.column_values import MISSING_TEXTS
from sparkgpu.prepare.levels import Levels
from sparkgpu.prepare.roles import ColumnRole, TableStatistics
from sparkgpu.prepare.target import Target

_UNREAD = (
    (r"[+-]?[0-9.]*[0-9],[0-9]+", "numbers; write them with a decimal point and no other separator"),
    (r"[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{4}( .*)?", "timestamps; write them as 2024-12-31"),
)
"""Forms in which people write numbers and dates, and as what their texts are not read."""


def _unread_notes(levels: Mapping[str, Levels]) -> list[str]:
    """The notes on text columns that plainly hold numbers or dates, by the levels of the training rows."""
    notes = []
    for column, found in levels.items():
        texts = [text for text in found.levels if text not in MISSING_TEXTS]
        notes += [
            f"{column!r} holds texts such as {texts[0]!r}, which are not read as {what}"
            for form, what in _UNREAD
            if texts and all(re.fullmatch(form, text) for text in texts)
        ]
    return notes


def notes_on(
    config: DataConfig,
    *,
    levels: Mapping[str, Levels],
    statistics: TableStatistics,
    target: Target,
    roles: Sequence[ColumnRole],
    features: Sequence[Feature],
    absent: Mapping[str, int],
    num_files: int,
) -> tuple[str, ...]:
    """The notes, one sentence each."""
    columns = [statistics.columns[role.column] for role in roles]
    notes = []
    for column in columns:
        if column.infinite:
            notes.append(f"{column.infinite:,} infinite values in {column.name!r} count as missing")
        if column.too_large:
            notes.append(f"{column.too_large:,} values beyond 3.4e38 in {column.name!r} count as missing")
    for held in ("numbers", "timestamps"):
        names = [role.column for role in roles if not role.asked and _held(statistics, role) == held]
        if held == "numbers" and statistics.columns[target.column].held == held:
            names.append(target.column)
        notes += _texts_read(names, held)
    notes += [*_unread_notes(levels), *_absent_notes(absent, num_files)]
    pairs = zip(target.classes, target.class_rows, strict=True)
    if few := [name for name, rows in pairs if rows == 2]:
        have = "class {} has only two rows" if len(few) == 1 else "classes {} have only two rows each"
        names_of = have.format(listed(map(repr, few)))
        notes.append(f"{names_of}, too few to learn it or to measure how well it is predicted")
    if config.class_weights == "balanced" and not target.classes:
        notes.append("class_weights = balanced has no meaning for a regression and was not applied")
    most = config.max_categories
    capped = [feature.title for feature in features if len(feature.levels) > most]
    if capped:
        notes.append(f"{listed(capped)}: more than {most:,} levels; the rarer ones became one level")
    with_mean = list(dict.fromkeys(feature.source for feature in features if feature.means_of))
    if with_mean:
        notes.append(f"{listed(with_mean)}: the mean target of each level is a feature as well")
    return tuple(notes)


def _absent_notes(absent: Mapping[str, int], num_files: int) -> list[str]:
    by_number: dict[int, list[str]] = {}
    for name, files in absent.items():
        by_number.setdefault(files, []).append(repr(name))
    return [
        f"{'column' if len(names) == 1 else 'columns'} {listed(names)} {'is' if len(names) == 1 else 'are'} "
        f"absent in {files:,} of {num_files:,} files and null there"
        for files, names in by_number.items()
    ]


def _held(statistics: TableStatistics, role: ColumnRole) -> str:
    return statistics.columns[role.column].held


def _texts_read(names: Sequence[str], held: str) -> list[str]:
    if not names:
        return []
    if len(names) == 1:
        return [f"{names[0]!r} is text that holds {held} and is read as such"]
    return [f"{listed(map(repr, names))} are texts that hold {held} and are read as such"]
