"""What the columns are used for and the schema that follows, from figures alone: no row is read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.errors import DataError
from sparkgpu.core.table.schema import DroppedColumn, Feature, SplitName, TableSchema
from sparkgpu.core.table.source import Source
from sparkgpu.core.words import listed
from sparkgpu.prepare.columns import refuse_reserved
from sparkgpu.prepare.labels import class_weights
from sparkgpu.prepare.levels import Levels
from sparkgpu.prepare.notes import notes_on
from sparkgpu.prepare.roles import ColumnRole, TableStatistics, check_columns, decide_roles
from sparkgpu.prepare.target import Target


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns in use, and those left out with the reasons."""

    roles: list[ColumnRole]
    dropped: list[DroppedColumn]

    def without(self, dropped: list[DroppedColumn]) -> Columns:
        """A copy with more columns left out."""
        unused = {item.column for item in dropped}
        roles = [role for role in self.roles if role.column not in unused]
        return Columns(roles=roles, dropped=[*self.dropped, *dropped])


def checked_target(source: str, types: Mapping[str, str], config: RunConfig) -> str:
    """The target, after every column that the configuration names was found. Raises `DataError`."""
    named = (("data.weight", config.data.weight), ("split.column", config.split.column))
    target = check_columns(
        types,
        target=config.data.target,
        roles=config.data.roles,
        others=[
            *((key, name) for key, name in named if name),
            *(("data.ignore", name) for name in config.data.ignore),
        ],
    )
    _check_uses(config)
    refuse_reserved(source, types)
    return target


def _check_uses(config: RunConfig) -> None:
    """Refuse a target that is also used for something else."""
    data, split = config.data, config.split
    uses = {"data.weight": data.weight, "split.column": split.column if split.kind != "time" else None}
    for key, name in uses.items():
        if name is not None and name == data.target:
            raise DataError(f"{key} {name!r} is the target. Choose another column, or another target.")


def columns_of(statistics: TableStatistics, config: RunConfig) -> Columns:
    special = {config.data.target, config.data.weight}
    if config.split.kind in ("group", "column"):
        special.add(config.split.column)
    candidates = [column for name, column in statistics.columns.items() if name not in special]
    roles, dropped = decide_roles(candidates, roles=config.data.roles, ignore=config.data.ignore)
    columns = Columns(roles=roles, dropped=dropped)
    check_features(columns)
    return columns


def check_features(columns: Columns) -> None:
    if not columns.roles:
        reasons = listed(f"{item.column} ({item.reason})" for item in columns.dropped)
        raise DataError(
            f"no usable features: {reasons or 'the target is the only column'}. "
            "Give a table with columns to learn from."
        )


def schema_of(
    config: RunConfig,
    source: str,
    statistics: TableStatistics,
    target: Target,
    columns: Columns,
    features: tuple[Feature, ...],
    *,
    levels: Mapping[str, Levels],
    absent: Mapping[str, int],
    num_files: int,
    fingerprint: str,
    held_out: Mapping[SplitName, Source],
) -> TableSchema:
    balance = class_weights(config.data, target)
    notes = notes_on(
        config.data,
        statistics=statistics,
        target=target,
        roles=columns.roles,
        features=features,
        levels=levels,
        absent=absent,
        num_files=num_files,
    )
    notes += tuple(f"the {split} rows are those of {table.name}" for split, table in held_out.items())
    return TableSchema(
        source=source,
        target=target.column,
        target_type=target.type,
        task=target.task,
        classes=target.classes,
        features=features,
        dropped=tuple(columns.dropped),
        notes=notes,
        weighted=bool(config.data.weight or balance),
        weight=config.data.weight,
        class_weights=balance,
        folds=config.split.folds,
        rows=target.rows,
        rows_refused=target.rows_refused,
        splits={},
        fingerprint=fingerprint,
        metric=config.metric,
    )


def check_splits(schema: TableSchema) -> None:
    needed = ("train", "test") if schema.folds else ("train", "valid", "test")
    empty = [name for name in needed if schema.splits[name] == 0]
    if empty:
        raise DataError(
            f"{schema.source}: {schema.rows:,} usable rows leave none for {listed(empty)}. "
            "Give more rows, or other shares in [split]."
        )
