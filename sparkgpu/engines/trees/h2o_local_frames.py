"""The run's table inside a lane's own H2O: columns in a file that H2O reads in place, without parsing.

Every column comes as XGBoost takes it: numbers as float32, categories as the places of their levels. Lanes of
one machine that train on the same rows share the file, and the system's memory that caches it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import h2o
import pyarrow.parquet as pq

from sparkgpu.engines.trees.column_rows import (
    WantedColumn,
    kind_of_places,
    read_column_rows,
    write_column_rows,
)
from sparkgpu.engines.trees.shared_files import SharedFile, share
from sparkgpu.jvm.column_file import put_frame
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.schema import LABEL, ROW_ID, WEIGHT, SplitName, TableSchema

if TYPE_CHECKING:
    from h2o import H2OFrame
    from py4j.java_gateway import JVMView

_MOST_ROWS_PER_CHUNK = 65_536
_LEAST_ROWS_PER_CHUNK = 1_000  # H2O copies a frame that has fewer chunks than threads, but none of fewer rows
_CHUNKS_PER_THREAD = 4


class LocalTables:
    """The run's table inside the H2O of this process's JVM, for all its trials.

    `scratch` is this lane's folder inside that of all lanes of the machine. Of each split, only the rows that
    the last trial asked for are kept. `alive` says that this lane lives while it waits for another one.
    """

    num_nodes = 1

    def __init__(
        self,
        java: JVMView,
        paths: RunPaths,
        schema: TableSchema,
        scratch: Path,
        *,
        threads: int,
        alive: Callable[[], None],
    ) -> None:
        self._java = java
        self._paths = paths
        self._schema = schema
        self.scratch = scratch
        self._threads = threads
        self._alive = alive
        self._made = 0
        self._kept: dict[str, tuple[object, H2OFrame, SharedFile]] = {}

    def coded(self, split: SplitName, fold: int | None, order: Mapping[str, Sequence[str]]) -> H2OFrame:
        """The rows that a trial uses for training, validation or testing, in the order of their ids.

        Levels of the features in `order` are numbers, their places in it from 0 on; a level that is not there
        is missing. Other categorical features are categories.
        """
        asked = (None if split == "test" else fold, tuple(order.items()))
        if split in self._kept:
            kept, frame, file = self._kept[split]
            if kept == asked:
                return frame
            del self._kept[split]
            h2o.remove(frame.frame_id)
            file.drop()
        self._made += 1
        name = f"rows_{split}_{self._made}"
        wanted = wanted_columns(self._paths, self._schema, order)
        digest = hashlib.sha256(repr((self._paths.root, split, asked[0], wanted)).encode()).hexdigest()[:16]
        file = share(
            self.scratch.parent / "columns" / f"{digest}.columns",
            self.scratch / f"{name}.columns",
            lambda target: write_column_rows(self._paths, split, fold, wanted, target),
            self._alive,
        )
        rows = read_column_rows(file.own, wanted)
        put_frame(
            self._java,
            name,
            rows.file,
            rows.columns,
            rows=rows.rows,
            rows_per_chunk=rows_per_chunk(rows.rows, self._threads),
        )
        frame = h2o.get_frame(name, light=True)
        self._kept[split] = (asked, frame, file)
        return frame

    def why_one_node(self, train: H2OFrame, valid: H2OFrame) -> None:
        """There is only one."""


def wanted_columns(
    paths: RunPaths, schema: TableSchema, order: Mapping[str, Sequence[str]]
) -> list[WantedColumn]:
    """The columns in the order of the table's files, those of `order` at the end.

    The order counts: equally good cuts, and the columns that are drawn for a tree, follow from it.
    """
    found: dict[str, WantedColumn] = {
        ROW_ID: WantedColumn(name=ROW_ID, kind="int64"),
        LABEL: WantedColumn(name=LABEL, kind="float64"),
    }
    if schema.classes:
        codes = tuple(str(code) for code in range(len(schema.classes)))
        found[LABEL] = WantedColumn(name=LABEL, kind=kind_of_places(len(codes)), levels=codes)
    if schema.weighted:
        found[WEIGHT] = WantedColumn(name=WEIGHT, kind="float64")
    for feature in schema.features:
        name = feature.name
        if feature.kind == "numeric":
            found[name] = WantedColumn(name=name, kind="float32")
        elif name in order:
            words = tuple(order[name])
            found[name] = WantedColumn(name=name, kind=kind_of_places(len(words)), words=words)
        else:
            levels = tuple(sorted(feature.levels, key=str.encode))  # as H2O sorts them
            found[name] = WantedColumn(
                name=name, kind=kind_of_places(len(levels)), words=levels, levels=levels
            )
    # Of the training rows, since with folds Spark writes no file for validation.
    file = next(iter(sorted(paths.split("train").glob("[!._]*.parquet"))))
    names = [name for name in pq.read_schema(file).names if name in found and name not in order]
    return [found[name] for name in (*names, *order)]


def rows_per_chunk(rows: int, threads: int) -> int:
    """Several chunks for each thread, of rows enough to be worth the way to them."""
    each = -(-rows // (_CHUNKS_PER_THREAD * threads))
    return min(max(each, _LEAST_ROWS_PER_CHUNK), _MOST_ROWS_PER_CHUNK)
