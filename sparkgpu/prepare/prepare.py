"""Makes ``table/`` and ``pipeline/`` from the user's table: roles, target, split, features; written once.

Runs in the Spark session of the first lane. Everything is written under a temporary name and renamed as a
whole, so ``table/schema.json`` appears only when the table is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.config.keys import RunConfig
from sparkgpu.config.values import Role
from sparkgpu.errors import DataError
from sparkgpu.prepare.columns import IN_TABLE, SPLIT, refuse_reserved
from sparkgpu.prepare.features import fit_pipeline, to_table, typed_columns
from sparkgpu.prepare.file_columns import FileColumns, file_columns
from sparkgpu.prepare.formats.text_files import refuse_other_encodings
from sparkgpu.prepare.labels import check_weights, class_weights, with_label
from sparkgpu.prepare.levels import Levels, count_levels, count_levels_of_parquet, useless, words
from sparkgpu.prepare.local_table import is_local, may_be_local, write_local_table
from sparkgpu.prepare.notes import notes_on
from sparkgpu.prepare.parquet_rows import read_rows
from sparkgpu.prepare.parquet_statistics import ParquetScan, from_scan
from sparkgpu.prepare.reader import open_source, refusing_unreadable, storable
from sparkgpu.prepare.roles import ColumnRole, check_columns, decide_roles
from sparkgpu.prepare.row_id import with_row_id
from sparkgpu.prepare.split import Split, with_split
from sparkgpu.prepare.statistics import TableStatistics, content_hash, fingerprint, gather, own_types
from sparkgpu.prepare.table_writer import write_table
from sparkgpu.prepare.target import Target, find_target
from sparkgpu.prepare.target_means import fit_means, with_means
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.files import write_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.row_order import put_in_order
from sparkgpu.table.schema import DroppedColumn, Feature, TableSchema
from sparkgpu.table.source import Source
from sparkgpu.words import listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """The columns in use, and those left out with the reasons."""

    roles: list[ColumnRole]
    dropped: list[DroppedColumn]

    def without(self, dropped: list[DroppedColumn]) -> _Columns:
        """A copy with more columns left out."""
        unused = {item.column for item in dropped}
        roles = [role for role in self.roles if role.column not in unused]
        return _Columns(roles=roles, dropped=[*self.dropped, *dropped])


def prepare(
    session: SparkSession,
    *,
    config: RunConfig,
    source: Source,
    scratch: Path,
    paths: RunPaths,
    events: EventWriter,
    scan: Callable[[], ParquetScan | None] = lambda: None,
    in_order: bool = True,
) -> TableSchema:
    """Prepare the table of a run. Returns its schema.

    `scan` waits for pyarrow's figures of the source, if pyarrow read it. The rows are in the order of their
    ids if `in_order`, which takes this one machine another pass over a table that Spark has written out of
    order. Raises `DataError` if the table is unusable; then there is no ``table/``.
    """
    with refusing_unreadable(source), ExitStack() as stack, ThreadPoolExecutor(1) as beside:
        with events.phase("reading the source"):
            files = file_columns(source)
            table, target_name = _open(session, source, config, scratch, files)
            if table.is_cached:
                stack.callback(table.unpersist)
            statistics = _gathered(table, source, config, target_name, scan())
            # Few small jobs that need little: while pyarrow works, or while Spark writes the table.
            hashed = beside.submit(lambda: statistics.fingerprint or fingerprint(table))
            if statistics.replaced:
                refuse_other_encodings(source)
            if statistics.rows == 0:
                raise DataError(f"{source.name}: the table has no rows. Give a table with rows.")
            target_statistics = statistics.columns[target_name]
            target = find_target(table, target_statistics, config.data.task)
            columns = _columns(statistics, config)
        with events.phase("splitting"):
            labelled = with_label(table, config.data, target)
            random = config.split.kind == "random"
            as_stored = not target_statistics.numeric or target_statistics.family == "number"
            plain = random and statistics.by_pyarrow and as_stored
            by_id = read_rows(source, target, config.seed) if plain else None
            split = with_split(
                labelled,
                config.split,
                seed=config.seed,
                rows=target.rows,
                class_rows=target.class_rows,
                by_id=by_id,
            )
        with events.phase("fitting the feature pipeline"):
            levels = _levels(split, source, columns.roles, statistics, config.data.max_categories)
            columns = columns.without(useless(columns.roles, levels, statistics.columns))
            _check_features(columns)
            pipeline, features = fit_pipeline(split.table, columns.roles, levels)
            if config.data.target_means:
                features = with_means(features, levels, target.classes)
        with events.phase("writing the table"):
            folder = paths.root / ".table"
            shutil.rmtree(folder, ignore_errors=True)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            saving = beside.submit(lambda: pipeline.write().overwrite().save(str(paths.pipeline)))
            if split.rows is not None and may_be_local(config, source) and is_local(features):
                balance = class_weights(config.data, target)
                splits = write_local_table(source, folder, features, target, split.rows, balance)
            else:
                typed = typed_columns(pipeline, split.table)
                means = fit_means(typed, features, target.classes, folder, seed=config.seed)
                splits = write_table(to_table(pipeline, split.table, features), folder, features, means)
                if in_order:
                    for name in splits:
                        put_in_order(folder / f"{IN_TABLE[SPLIT]}={name}")
        schema = _schema(
            config,
            source.name,
            statistics,
            target,
            columns,
            features,
            splits,
            files=files,
            fingerprint=hashed.result(),
        )
        _check_splits(schema)
        check_weights(folder, schema)
        write_json(folder / "schema.json", schema)
        shutil.rmtree(paths.table, ignore_errors=True)
        folder.replace(paths.table)
        with events.phase("saving the pipeline"):
            saving.result()
    return schema


def _open(
    session: SparkSession, source: Source, config: RunConfig, scratch: Path, files: FileColumns | None
) -> tuple[DataFrame, str]:
    """The source with a row id, and the target.

    Text is parsed once and cached; a catalog table is first written to files.
    """
    table = open_source(session, source, files)
    named = (("data.weight", config.data.weight), ("split.column", config.split.column))
    target = check_columns(
        dict(table.dtypes),
        target=config.data.target,
        roles=config.data.roles,
        others=[
            *((key, name) for key, name in named if name),
            *(("data.ignore", name) for name in config.data.ignore),
        ],
    )
    _check_uses(config)
    refuse_reserved(source.name, table.columns)
    if not source.has_places:
        staged = str(scratch / "staged.parquet")
        shutil.rmtree(staged, ignore_errors=True)
        # A catalog table has no fixed row order, and the split needs one, so sort the rows by their content.
        storable(table).orderBy(content_hash(table)).write.parquet(staged)
        source = Source(name=source.name, location=staged, format="parquet")
        table = session.read.parquet(staged)
    numbered = with_row_id(table, source)
    return numbered if source.is_typed else numbered.persist(), target


def _gathered(
    table: DataFrame, source: Source, config: RunConfig, target: str, scan: ParquetScan | None
) -> TableStatistics:
    """The statistics of the source: pyarrow's if it read the same as Spark reads, else Spark's own."""
    # The user's task decides what the target's texts are.
    roles: dict[str, Role] = dict(config.data.roles)
    if config.data.task == "regression":
        roles[target] = "numeric"
    if scan is not None:
        columns = from_scan(scan, own_types(table), roles)
        if columns is not None:
            return TableStatistics(rows=scan.rows, columns=columns, by_pyarrow=True)
    return gather(table, target=target, text_file=not source.is_typed, roles=roles)


def _check_uses(config: RunConfig) -> None:
    """Refuse a target that is also used for something else."""
    data, split = config.data, config.split
    uses = {"data.weight": data.weight, "split.column": split.column if split.kind != "time" else None}
    for key, name in uses.items():
        if name is not None and name == data.target:
            raise DataError(f"{key} {name!r} is the target. Choose another column, or another target.")


def _columns(statistics: TableStatistics, config: RunConfig) -> _Columns:
    special = {config.data.target, config.data.weight}
    if config.split.kind in ("group", "column"):
        special.add(config.split.column)
    candidates = [column for name, column in statistics.columns.items() if name not in special]
    roles, dropped = decide_roles(candidates, roles=config.data.roles, ignore=config.data.ignore)
    columns = _Columns(roles=roles, dropped=dropped)
    _check_features(columns)
    return columns


def _check_features(columns: _Columns) -> None:
    if not columns.roles:
        reasons = listed(f"{item.column} ({item.reason})" for item in columns.dropped)
        raise DataError(
            f"no usable features: {reasons or 'the target is the only column'}. "
            "Give a table with columns to learn from."
        )


def _levels(
    split: Split, source: Source, roles: Sequence[ColumnRole], statistics: TableStatistics, most: int
) -> dict[str, Levels]:
    """The levels of the text columns in the training rows."""
    columns = words(roles)
    if split.train_N is not None and all(statistics.columns[name].type == "string" for name in columns):
        levels = count_levels_of_parquet(source, columns, most, split.train_N)
        if levels is not None:
            return levels
    return count_levels(split.table.where(f"{SPLIT} = 'train'"), columns, most)


def _schema(
    config: RunConfig,
    source: str,
    statistics: TableStatistics,
    target: Target,
    columns: _Columns,
    features: tuple[Feature, ...],
    splits: dict[str, int],
    *,
    files: FileColumns | None,
    fingerprint: str,
) -> TableSchema:
    balance = class_weights(config.data, target)
    notes = notes_on(
        config.data,
        statistics=statistics,
        target=target,
        roles=columns.roles,
        features=features,
        files=files,
    )
    return TableSchema(
        source=source,
        target=target.column,
        target_type=statistics.columns[target.column].type,
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
        splits={name: splits.get(name, 0) for name in ("train", "valid", "test")},
        fingerprint=fingerprint,
    )


def _check_splits(schema: TableSchema) -> None:
    needed = ("train", "test") if schema.folds else ("train", "valid", "test")
    empty = [name for name in needed if schema.splits[name] == 0]
    if empty:
        raise DataError(
            f"{schema.source}: {schema.rows:,} usable rows leave none for {listed(empty)}. "
            "Give more rows, or other shares in [split]."
        )
