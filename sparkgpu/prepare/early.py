"""Prepares a small local Parquet table without Spark.

A JVM that has just started takes seconds to open a file and to look at its rows, and everyone waits for the
table. Limits: one file of moderate size whose columns are plain numbers, truths and texts, split at random;
pyarrow and Spark surely read these alike. Every other table is left to `sparkgpu.prepare.prepare`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.config.keys import RunConfig
from sparkgpu.config.values import Role
from sparkgpu.prepare.content import fingerprint_of
from sparkgpu.prepare.decisions import check_features, check_splits, checked_target, columns_of, schema_of
from sparkgpu.prepare.features import describe
from sparkgpu.prepare.file_columns import file_columns, files_of
from sparkgpu.prepare.labels import class_weights
from sparkgpu.prepare.levels import count_levels_of_parquet, useless, words
from sparkgpu.prepare.local_table import is_local, may_be_local, write_local_table
from sparkgpu.prepare.parquet_rows import read_rows
from sparkgpu.prepare.parquet_statistics import from_scan, scan_parquet
from sparkgpu.prepare.pipeline_files import save_pipeline
from sparkgpu.prepare.split import split_by_id
from sparkgpu.prepare.statistics import TableStatistics
from sparkgpu.prepare.table_folder import put_in_place, table_folder
from sparkgpu.prepare.target import RowsNeededError, find_target
from sparkgpu.prepare.target_means import with_means
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.schema import TableSchema
from sparkgpu.table.source import Source

_MOST_VALUES = 10_000_000  # a second's work; with more, Spark starts meanwhile
_PLAIN = {
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.bool_(): "boolean",
    pa.string(): "string", pa.large_string(): "string",
}  # fmt: skip
_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}  # Spark reads these without further libraries


def prepare_early(
    *, config: RunConfig, source: Source, paths: RunPaths, events: EventWriter
) -> TableSchema | None:
    """Prepare the table and the pipeline; None if that is left to Spark, and then there is no table.

    Raises `DataError` if the table is unusable.
    """
    try:
        types = plain_types(source) if may_be_local(config, source) else None
        return None if types is None else _prepared(config, source, paths, events, types)
    except (RowsNeededError, OSError, pa.ArrowInvalid):  # Spark can do it, or says why not
        return None


def plain_types(source: Source) -> dict[str, str] | None:
    """Spark's types of the columns of a local Parquet file; None if they are not certain."""
    files = files_of(source)
    if len(files) != 1:
        return None
    metadata = pq.read_metadata(files[0])
    if not 0 < metadata.num_rows * metadata.num_columns <= _MOST_VALUES:
        return None
    if any(key.startswith(b"org.apache.spark") for key in metadata.metadata or {}):
        return None  # Spark wrote it, and keeps types of its own there
    columns = (
        metadata.row_group(group).column(place)
        for group in range(metadata.num_row_groups)
        for place in range(metadata.num_columns)
    )
    if any(column.compression not in _CODECS for column in columns):
        return None
    types = {column.name: _PLAIN.get(column.type) for column in metadata.schema.to_arrow_schema()}
    plain = {name: kind for name, kind in types.items() if kind is not None}
    return plain if len(plain) == metadata.num_columns else None


def _prepared(
    config: RunConfig, source: Source, paths: RunPaths, events: EventWriter, types: Mapping[str, str]
) -> TableSchema | None:
    with events.phase("reading the source"):
        name = checked_target(source, types, config)
        scan = scan_parquet(source, name)
        roles: dict[str, Role] = dict(config.data.roles)
        if config.data.task == "regression":  # the user's task decides what the target's texts are
            roles[name] = "numeric"
        found = None if scan is None else from_scan(scan, types, roles)
        if scan is None or found is None:
            return None
        statistics = TableStatistics(
            rows=scan.rows, columns=found, by_pyarrow=True, text_file=source.holds_text
        )
        described = statistics.columns[name]
        if described.numeric and described.family != "number":
            return None
        target = find_target(None, described, config.data.task)
        columns = columns_of(statistics, config)
        fingerprint = fingerprint_of(source, types)
    with events.phase("splitting"):
        by_id = read_rows(source, target, config.seed)
        if by_id is None:
            return None
        train_N, split = split_by_id(config.split, by_id, rows=target.rows, class_rows=target.class_rows)
        texts = words(columns.roles)
        if any(types[column] != "string" for column in texts):
            return None
        levels = count_levels_of_parquet(source, texts, config.data.max_categories, train_N)
        if levels is None:
            return None
        columns = columns.without(useless(columns.roles, levels, statistics.columns))
        check_features(columns)
        pipeline = describe(columns.roles, types, tuple(types), levels)
        features = pipeline.features
        if config.data.target_means:
            features = with_means(features, levels, target.classes)
        if not is_local(features):
            return None
    with events.phase("writing the table"), table_folder(paths) as folder:
        balance = class_weights(config.data, target)
        splits = write_local_table(source, folder, features, target, split, balance)
        schema = schema_of(
            config,
            source.name,
            statistics,
            target,
            columns,
            features,
            splits,
            files=file_columns(source),
            fingerprint=fingerprint,
        )
        check_splits(schema)
        save_pipeline(pipeline, paths.pipeline)
        put_in_place(folder, schema, paths)
    return schema
