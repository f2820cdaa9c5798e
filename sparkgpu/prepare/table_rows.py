"""Writes the rows of ``table/``: what VectorAssembler gave, or the same by Arrow, beside split and label.

Both ways end in `RowWriter`. In Spark's tasks it runs in `mapInArrow`: pyarrow writes several times faster
than Spark's own writer, which makes an object of every value. Each task writes its own files under temporary
names and renames them; only counts return to the driver.

N rows, F features.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import as_numpy
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.table.writer import SplitFile, slots, table_rows, with_label
from sparkgpu.prepare.columns import ROW_ID, quoted
from sparkgpu.prepare.decisions import check_splits
from sparkgpu.prepare.encoding import Encoder, load_made
from sparkgpu.prepare.file_columns import changed, file_states
from sparkgpu.prepare.local_rows import LocalRows
from sparkgpu.prepare.pyspark_internals import arrow_batches
from sparkgpu.prepare.spark_rows import mapped, results_of_tasks
from sparkgpu.prepare.split import NONE, SPLITS, SplitRule
from sparkgpu.prepare.target import check_classes, check_weights, training_weights
from sparkgpu.prepare.target_means import load_means
from sparkgpu.prepare.texts import TextFeatures, load_texts, text_features

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_MOST_VALUES_HERE = 2_000_000


@dataclass(frozen=True, kw_only=True)
class RowWriter:
    """Writes rows to ``table/split=<name>/`` of `paths`, which must be the same path on every executor.

    Of several targets, those of each go to its own folder as well, with its label.
    """

    paths: RunPaths
    schema: TableSchema
    rule: SplitRule
    states: Mapping[Path, tuple[int, ...] | None] = field(default_factory=dict)
    """The source's files on this machine as they were first read (`file_columns.file_states`)."""
    by_target: Mapping[str, TableSchema] = field(default_factory=dict)
    """Of several targets, their tables by folder, in the order of the rule's targets."""

    @property
    def columns(self) -> list[str]:
        """The user's columns that label, split, weight and the columns beside the features come from."""
        weight = [self.schema.weight] if self.schema.weight else []
        beside = [feature.source for feature in self.schema.beside]
        return list(dict.fromkeys([*self.rule.columns, *weight, *beside]))

    def write(self, batches: Iterable[tuple[pa.RecordBatch, NDArray[np.float32]]]) -> Counter[str]:
        """Write batches with the row id and `columns`, each with its slots (N, F); the rows of each split.

        Of several targets, also those of each one's splits, such as ``price/train``.

        Consecutive rows are in one file of each split, named by the first of them. So whoever reads the files
        in the order of their names has the rows in the order of their ids, though a task of Spark reads small
        files in the order of their sizes.
        """
        rows: Counter[str] = Counter()
        files: dict[str, SplitFile] = {}
        first, expected = -1, -1
        for batch, slot_NF in batches:
            row_id_N = as_numpy(batch.column(ROW_ID))
            jumps = np.flatnonzero(np.diff(row_id_N, prepend=expected - 1) != 1).tolist()
            for begin, end in pairwise([*dict.fromkeys([0, *jumps]), batch.num_rows]):
                if begin in jumps:
                    rows += _closed(files)
                    files, first = {}, int(row_id_N[begin])
                part = slice(begin, end)
                self._add(batch.slice(begin, end - begin), slot_NF[part], files, f"part-{first:012d}.parquet")
            expected = int(row_id_N[-1]) + 1 if batch.num_rows else expected
        return rows + _closed(files)

    def _add(
        self, batch: pa.RecordBatch, slot_NF: NDArray[np.float32], files: dict[str, SplitFile], name: str
    ) -> None:
        """Add rows to the file called `name` of each split."""
        assigned, beside = self.rule.assigned(batch), self.schema.beside
        if beside:
            others_NF = slots(beside, Encoder(self.schema.with_features(beside)).rows(batch))
            slot_NF = np.concatenate([slot_NF, others_NF], axis=1)
        rows = table_rows(
            (*self.schema.features, *beside),
            row_id_N=as_numpy(batch.column(ROW_ID)),
            label_N=assigned.label_N,
            weight_N=training_weights(self.schema, batch, assigned.class_N),
            fold_N=assigned.fold_N,
            slot_NF=slot_NF,
        )
        self._add_rows(rows, assigned.split_N, "", self.paths, files, name)
        targets = zip(self.rule.target.each, self.by_target.items(), strict=True) if self.by_target else ()
        for target, (folder, schema) in targets:
            label_N = target.labels(batch)
            has_label_N, class_N = target.classes_of(label_N)
            own = with_label(rows, label_N, training_weights(schema, batch, class_N))
            split_N = np.where(has_label_N, assigned.split_N, np.int8(NONE))
            self._add_rows(own, split_N, f"{folder}/", self.paths.target(folder), files, name)

    @staticmethod
    def _add_rows(
        rows: pa.Table, split_N: NDArray[np.int8], prefix: str, paths: RunPaths, files: dict[str, SplitFile],
        name: str,
    ) -> None:  # fmt: skip
        for split, code in SPLITS.items():
            is_own_N = split_N == code
            if is_own_N.any():
                if prefix + split not in files:
                    files[prefix + split] = SplitFile(paths.split(split), name)
                files[prefix + split].add(rows if is_own_N.all() else rows.filter(pa.array(is_own_N)))


def _closed(files: Mapping[str, SplitFile]) -> Counter[str]:
    return Counter({split: file.close() for split, file in files.items()})


def write_assembled(assembled: DataFrame, vector: str, writer: RowWriter) -> Counter[str]:
    """Write rows with the row id, the user's columns of `writer` and a `vector`; the rows of each split.

    A small table comes to this process as Arrow batches: Python workers would take longer to start.
    """
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as F

    names = [feature.name for feature in writer.schema.features]
    width = len(names)
    texts = text_features(writer.schema.features)
    columns = [quoted(name) for name in dict.fromkeys((ROW_ID, *writer.columns, *texts))]
    rows = assembled.select(*columns, vector_to_array(F.col(vector), "float32").alias(vector))

    def write(batches: Iterable[pa.RecordBatch]) -> Counter[str]:
        fitted = load_texts(writer.paths.table, writer.schema.features)
        return writer.write((batch, made(batch, fitted)) for batch in batches)

    def made(batch: pa.RecordBatch, fitted: Mapping[str, TextFeatures]) -> NDArray[np.float32]:
        slot_NF = as_numpy(batch.column(vector).flatten()).reshape(-1, width) + np.float32(0)  # no -0
        if fitted:  # training rows have estimates of their own
            part_N = writer.rule.parts(batch)
            own = np.flatnonzero(part_N >= 0)
            train = batch.take(pa.array(own))
            for text in fitted.values():
                for name, value_N in text.columns(train, part_N[own]).items():
                    slot_NF[own, names.index(name)] = value_N
        return slot_NF

    if writer.schema.rows * width <= _MOST_VALUES_HERE:
        return write(arrow_batches(rows))
    return sum(results_of_tasks(rows, write, width=width), Counter())


def write_encoded(rows: LocalRows, writer: RowWriter) -> Counter[str]:
    """Write the rows of a local table with the features that an encoder makes; the rows of each split.

    This is what predictions do with new rows, so no JVM is needed.
    """
    schema = writer.schema
    made = load_made(writer.paths.table, schema.features, past=writer.rule.goes_by_time)
    columns = list(dict.fromkeys([*writer.columns, *Encoder(schema, made).columns]))

    def encoded(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, NDArray[np.float32]]]:
        encoder = Encoder(schema, made)
        for batch in batches:
            part_N = writer.rule.parts(batch) if made else None
            yield batch, slots(schema.features, encoder.rows(batch, part_N=part_N))

    return sum(rows.map(lambda batches: writer.write(encoded(batches)), columns), Counter())


def with_mean_columns(table: DataFrame, writer: RowWriter) -> DataFrame:
    """The table with the columns of mean targets, under their names in the pipeline."""
    from pyspark.sql.types import DoubleType, StructField, StructType

    features = writer.schema.features
    names = {feature.name: feature.pipeline for feature in features if feature.means_of is not None}
    added = [StructField(name, DoubleType()) for name in names.values()]

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loaded = load_means(writer.paths.table, features, past=writer.rule.goes_by_time)
        for batch in batches:
            part_N = writer.rule.parts(batch)
            made: dict[str, NDArray[np.float32]] = {}
            for means in loaded.values():
                made |= means.columns(batch, part_N)
            columns = [pa.array(made[name].astype(np.float64)) for name in names]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *columns], names=[*batch.schema.names, *names.values()]
            )

    return mapped(table, add, StructType([*table.schema.fields, *added])) if names else table


@contextmanager
def cleared(writer: RowWriter) -> Iterator[None]:
    """Remove what is still in the writer's folder at the end."""
    try:
        yield
    finally:
        shutil.rmtree(writer.paths.root, ignore_errors=True)


def completed(writer: RowWriter, splits: Counter[str], paths: RunPaths) -> TableSchema:
    """Make the table that was written the run's table, if its rows suffice. Raises `DataError`."""
    written = sum(splits[name] for name in SPLITS)
    if file_states(writer.states) != writer.states or written != writer.schema.rows:
        raise changed(writer.schema.source)
    for folder, found in writer.by_target.items():
        own = _counted(writer.paths.target(folder), found, splits, f"{folder}/")
        check_classes(writer.paths.target(folder), own)
        paths.target(folder).root.mkdir(parents=True, exist_ok=True)
        _move(writer.paths.target(folder), paths.target(folder))
    schema = _counted(writer.paths, writer.schema, splits)
    _move(writer.paths, paths)
    return schema


def _counted(paths: RunPaths, schema: TableSchema, splits: Counter[str], prefix: str = "") -> TableSchema:
    """The schema with the rows of each split, written to its table. Raises `DataError` if one is empty."""
    counted = {name: splits[prefix + name] for name in ("train", "valid", "test")}
    schema = schema.model_copy(update={"splits": counted})
    check_splits(schema)
    check_weights(paths, schema)
    write_json(paths.schema, schema)
    return schema


def _move(made: RunPaths, paths: RunPaths) -> None:
    shutil.rmtree(paths.table, ignore_errors=True)
    made.table.replace(paths.table)
