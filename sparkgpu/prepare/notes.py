"""The notes for the user on the table: what counts as missing, which texts are read as numbers, and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkgpu.core.config.keys import DataConfig
from sparkgpu.core.table.schema import Feature
from sparkgpu.core.words import listed
from sparkgpu.prepare.roles import ColumnRole, TableStatistics
from sparkgpu.prepare.target import Target


def notes_on(
    config: DataConfig,
    *,
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
    notes += _absent_notes(absent, num_files)
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
