"""Makes ``table/`` and ``pipeline/`` from the user's table: roles, target, split, features; written once.

Runs in the Spark session of the first lane. Everything is written under a temporary name and renamed as a
whole, so ``table/schema.json`` appears only when the table is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from sparkgpu.config.keys import RunConfig
from sparkgpu.config.values import Role
from sparkgpu.errors import DataError
from sparkgpu.prepare.columns import IN_TABLE, SPLIT
from sparkgpu.prepare.decisions import check_features, check_splits, checked_target, columns_of, schema_of
from sparkgpu.prepare.features import describe, to_table, typed_columns
from sparkgpu.prepare.file_columns import FileColumns, file_columns
from sparkgpu.prepare.formats.text_files import refuse_other_encodings
from sparkgpu.prepare.labels import check_weights, class_weights, with_label
from sparkgpu.prepare.levels import Levels, count_levels, count_levels_of_parquet, useless, words
from sparkgpu.prepare.local_table import is_local, may_be_local, write_local_table
from sparkgpu.prepare.parquet_rows import read_rows
from sparkgpu.prepare.parquet_statistics import ParquetScan, from_scan
from sparkgpu.prepare.pipeline_files import save_pipeline
from sparkgpu.prepare.reader import open_source, refusing_unreadable, storable
from sparkgpu.prepare.roles import ColumnRole
from sparkgpu.prepare.row_id import with_row_id
from sparkgpu.prepare.split import Split, with_split
from sparkgpu.prepare.statistics import TableStatistics, content_hash, fingerprint, gather, own_types
from sparkgpu.prepare.table_folder import put_in_place, table_folder
from sparkgpu.prepare.table_writer import write_table
from sparkgpu.prepare.target import find_target
from sparkgpu.prepare.target_means import fit_means, with_means
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.row_order import put_in_order
from sparkgpu.table.schema import TableSchema
from sparkgpu.table.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
            if statistics.replaced and not source.is_typed:
                refuse_other_encodings(source)
            if statistics.rows == 0:
                raise DataError(f"{source.name}: the table has no rows. Give a table with rows.")
            target_statistics = statistics.columns[target_name]
            target = find_target(table, target_statistics, config.data.task)
            columns = columns_of(statistics, config)
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
            check_features(columns)
            pipeline = describe(columns.roles, dict(split.table.dtypes), split.table.columns, levels)
            features = pipeline.features
            if config.data.target_means:
                features = with_means(features, levels, target.classes)
        with events.phase("writing the table"):
            folder = stack.enter_context(table_folder(paths))
            save_pipeline(pipeline, paths.pipeline)
            if split.rows is not None and may_be_local(config, source) and is_local(features):
                balance = class_weights(config.data, target)
                splits = write_local_table(source, folder, features, target, split.rows, balance)
            else:
                typed = typed_columns(pipeline, split.table)
                means = fit_means(typed, features, target.classes, folder, seed=config.seed)
                splits = write_table(to_table(typed, features), folder, features, means)
                if in_order:
                    for name in splits:
                        put_in_order(folder / f"{IN_TABLE[SPLIT]}={name}")
        schema = schema_of(
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
        check_splits(schema)
        check_weights(folder, schema)
        put_in_place(folder, schema, paths)
    return schema


def _open(
    session: SparkSession, source: Source, config: RunConfig, scratch: Path, files: FileColumns | None
) -> tuple[DataFrame, str]:
    """The source with a row id, and the target.

    Text is parsed once and cached; a catalog table is first written to files.
    """
    table = open_source(session, source, files)
    target = checked_target(source, dict(table.dtypes), config)
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
            return TableStatistics(
                rows=scan.rows, columns=columns, by_pyarrow=True, text_file=source.holds_text
            )
    return gather(table, target=target, text_file=source.holds_text, roles=roles)


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
