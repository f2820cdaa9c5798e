"""Writes the prepared table as Parquet, one folder per split, by pyarrow inside Spark's tasks.

Spark passes each task's rows as Arrow batches and pyarrow writes them. That is several times faster than
Spark's own writer, which makes an object of every value. Work on texts is left to pyarrow where possible,
since for Spark a text takes several times as long as a number on the way to Arrow. Rows keep their order.
Each task writes temporary files and renames them, and only counts return to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkgpu.prepare.level_means import ColumnMeans, LevelMeans
from sparkgpu.prepare.target_means import parts_of
from sparkgpu.table.row_order import GROUP_ROWS, stretches
from sparkgpu.table.rows import as_numpy
from sparkgpu.table.schema import OTHER_LEVEL, ROW_ID, SPLIT, Feature

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPLITS = ("train", "valid", "test")


def write_table(
    table: DataFrame, folder: Path, features: Sequence[Feature], means: Sequence[ColumnMeans] = ()
) -> dict[str, int]:
    """Write `table`, which holds a column ``split``, to ``folder/split=<name>/``; rows by split.

    In a column of `features` with capped levels, the rarer levels become `OTHER_LEVEL`, and the `means` of
    its levels are added as columns. `folder` must have the same path on every executor.
    """
    from pyspark.sql import functions as F

    folder.mkdir(parents=True, exist_ok=True)
    code = F.expr(f"cast(array_position(array{_SPLITS}, {SPLIT}) AS tinyint)")
    kept = capped_levels(features)
    coded = table.withColumn(SPLIT, code)
    counted = coded.mapInArrow(_writer(str(folder), kept, means), "split string, rows long").collect()
    rows: dict[str, int] = {}
    for split, number in counted:
        rows[split] = rows.get(split, 0) + number
    return rows


def warm_up(session: SparkSession) -> None:
    """Start Spark's Python worker and load its imports, so that `write_table` finds it ready."""
    session.range(1).mapInArrow(_unchanged, "id long").collect()


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _writer(
    folder: str, kept: Mapping[str, Sequence[str]], means: Sequence[ColumnMeans]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        name = f"part-{context.partitionId():05d}.parquet"
        files: dict[str, SplitFile] = {}
        looked_up = [(found, LevelMeans(found)) for found in means]
        for batch in batches:
            whole = pa.Table.from_batches([batch])
            is_train_N = as_numpy(whole[SPLIT]) == 1 + _SPLITS.index("train")
            for column_means, found in looked_up:
                part_N = parts_of(column_means, whole, is_train_N)
                for feature, mean in found.columns(whole[column_means.column], part_N).items():
                    whole = whole.append_column(feature, mean)
            for column, levels in kept.items():
                place = whole.schema.get_field_index(column)
                whole = whole.set_column(place, column, cut_off(whole[column], levels))
            for code in pc.unique(whole[SPLIT]).to_pylist():
                split = _SPLITS[code - 1]
                if split not in files:
                    files[split] = SplitFile(Path(folder) / f"{SPLIT}={split}", name)
                files[split].add(whole.filter(pc.equal(whole[SPLIT], code)).drop_columns([SPLIT]))
        rows = [file.close() for file in files.values()]
        yield pa.RecordBatch.from_pydict({"split": list(files), "rows": pa.array(rows, pa.int64())})

    return write


def capped_levels(features: Sequence[Feature]) -> dict[str, tuple[str, ...]]:
    """The levels that stay as they are, of each feature with levels beyond the cap."""
    return {feature.name: feature.levels[:-1] for feature in features if OTHER_LEVEL in feature.levels}


def cut_off(texts: pa.Array | pa.ChunkedArray, levels: Sequence[str]) -> pa.Array | pa.ChunkedArray:
    """Merge all levels except these into one; missing values stay missing."""
    is_kept = pc.or_(pc.is_in(texts, value_set=pa.array(levels, texts.type)), texts.is_null())
    return pc.if_else(is_kept, texts, pa.scalar(OTHER_LEVEL, texts.type))


class SplitFile:
    """One split's file of one task, or of a table; it gets its final name, complete, only in `close`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / name
        self._temporary = folder / f".{name}"
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._rows_waiting = 0
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._rows_waiting += rows.num_rows
        if self._rows_waiting >= GROUP_ROWS:
            self._flush()

    def close(self) -> int:
        """Write the remaining rows, rename the file, and return its number of rows."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._temporary.replace(self._path)
        return self._rows

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        if self._writer is None:
            words = [field.name for field in rows.schema if pa.types.is_string(field.type)]
            # Numbers rarely repeat enough for a dictionary to be worth its cost.
            self._writer = pq.ParquetWriter(self._temporary, rows.schema, use_dictionary=words)
        for stretch in stretches(as_numpy(rows[ROW_ID])):
            self._writer.write_table(rows.slice(stretch.start, stretch.stop - stretch.start))
        self._rows += rows.num_rows
        self._waiting, self._rows_waiting = [], 0
