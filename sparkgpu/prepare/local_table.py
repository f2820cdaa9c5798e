"""Writes the prepared table of a local Parquet source by pyarrow alone, while Spark saves the pipeline.

For a table that pyarrow reads as Spark does (`sparkgpu.prepare.parquet_statistics`) and splits as Spark does
(`sparkgpu.prepare.split`), a job of a JVM that has just started takes several seconds more, and with
thousands of columns a minute. The files are those of `sparkgpu.prepare.table_writer`.

N rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkgpu.config.keys import RunConfig
from sparkgpu.host.cores import usable_cores
from sparkgpu.prepare.column_values import as_words, moments, numbers, part_of, truths
from sparkgpu.prepare.parquet_rows import Part, batches, parts_of
from sparkgpu.prepare.roles import BROKEN_TYPES, FLOAT32_MAX, WHOLE_TYPES
from sparkgpu.prepare.split import TEST, TRAIN, VALID, RowSplit
from sparkgpu.prepare.table_writer import SplitFile, capped_levels, cut_off
from sparkgpu.prepare.target import Target
from sparkgpu.table import schema as names
from sparkgpu.table.schema import Feature
from sparkgpu.table.source import Source

_SPLITS = {"train": TRAIN, "valid": VALID, "test": TEST}
_MOST_VALUES = 16_000_000  # in a batch
_PART_ROWS = 1_500_000
_MOST_THREADS = 8  # each holds a batch and a row group of every split
_WORD_TYPES = ("string", "boolean", *WHOLE_TYPES)  # others have their own spelling in Spark
_STORED = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}


def may_be_local(config: RunConfig, source: Source) -> bool:
    """Whether the table of this run may be written here, as far as its configuration tells."""
    plain = config.split.kind == "random" and not config.split.folds and not config.data.weight
    return plain and source.format == "parquet" and Path(source.location).exists()


def is_local(features: Sequence[Feature]) -> bool:
    """Whether these features have the same values by pyarrow as by Spark, to the last letter."""
    return not any(
        feature.means_of or (feature.reading == "words" and feature.type not in _WORD_TYPES)
        for feature in features
    )


def write_local_table(
    source: Source,
    folder: Path,
    features: Sequence[Feature],
    target: Target,
    split: RowSplit,
    class_weights: Sequence[float],
) -> dict[str, int]:
    """Write the rows of each split to ``folder/split=<name>/``. Returns their numbers.

    The order of the files' names is that of the row ids. Threads write parts of the table, whose sizes depend
    on the table alone, and so does every file.
    """
    columns = list(dict.fromkeys([*(feature.source for feature in features), target.column]))
    size = max(1_024, min(131_072, _MOST_VALUES // len(columns)))
    kept = capped_levels(features)

    def write(number: int, part: Part) -> dict[str, int]:
        files: dict[str, SplitFile] = {}
        begin = part.begin
        for batch in batches(source, columns, part=part, rows=size):
            end = begin + batch.num_rows
            whole = pa.table(
                {
                    **_own(batch, target, split, begin, class_weights),
                    **_values(batch, features, kept),
                }
            )
            code_N = split.split_N[begin:end]
            for name, code in _SPLITS.items():
                which_N = code_N == code
                if which_N.any():
                    if name not in files:
                        files[name] = SplitFile(
                            folder / f"{names.SPLIT}={name}", f"part-{number:05d}.parquet"
                        )
                    files[name].add(whole.filter(pa.array(which_N)))
            begin = end
        return {name: file.close() for name, file in files.items()}

    parts = parts_of(source, _PART_ROWS)
    rows: Counter[str] = Counter()
    with ThreadPoolExecutor(min(len(parts), usable_cores(), _MOST_THREADS)) as threads:
        for found in threads.map(write, range(len(parts)), parts):
            rows.update(found)
    return dict(rows)


def _own(
    batch: pa.RecordBatch, target: Target, split: RowSplit, begin: int, class_weights: Sequence[float]
) -> dict[str, pa.Array]:
    """Row id, label and weight."""
    end = begin + batch.num_rows
    code_N = split.code_N[begin:end]
    found = {names.ROW_ID: pa.array(np.arange(begin, end, dtype=np.int64))}
    if target.classes:
        found[names.LABEL] = pa.array(code_N.astype(np.int32))
    else:
        found[names.LABEL] = numbers(batch.column(target.column)).cast(pa.float64())
    if class_weights:
        found[names.WEIGHT] = pa.array(np.asarray(class_weights)[np.maximum(code_N, 0)])
    return found


def _values(
    batch: pa.RecordBatch, features: Sequence[Feature], kept: Mapping[str, Sequence[str]]
) -> dict[str, pa.Array]:
    """The features, in the types that Spark gives them."""
    moment_of: dict[str, pa.Array] = {}
    found: dict[str, pa.Array] = {}
    for feature in features:
        column = batch.column(feature.source)
        if feature.reading == "moment":
            if feature.source not in moment_of:
                moment_of[feature.source] = moments(column)
            values = part_of(moment_of[feature.source], feature.part)
            is_day = feature.part == "days since 1970"
            found[feature.name] = values.cast(pa.float64() if is_day else pa.int32())
        elif feature.reading == "words":
            words = as_words(column, feature.type or "string")
            levels = kept.get(feature.name)
            found[feature.name] = words if levels is None else cut_off(words, levels)
        elif feature.reading == "truth":
            found[feature.name] = truths(column).cast(pa.int32())
        else:
            found[feature.name] = _number(column, feature.type or "double")
    return found


def _number(column: pa.Array, kind: str) -> pa.Array:
    values: Any = numbers(column)
    if kind in _STORED:
        return values.cast(_STORED[kind])
    if kind == "boolean":
        return values.cast(pa.int32())
    if kind in BROKEN_TYPES or kind == "string":
        return pc.if_else(pc.less_equal(pc.abs(values), FLOAT32_MAX), values, None)
    return values.cast(pa.float64())
