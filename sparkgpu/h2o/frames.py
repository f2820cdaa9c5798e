"""The run's table inside a lane's own H2O: columns in a file that H2O reads in place, without parsing.

The features are the float32 columns of the table's files: numbers, and the level codes of categories or, for
trees that get categories as numbers, their positions in an order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import h2o

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import LABEL, WEIGHT, SplitName, TableSchema
from sparkgpu.h2o.column_file import WantedColumn, put_frame, write_columns

if TYPE_CHECKING:
    from h2o import H2OFrame
    from py4j.java_gateway import JVMView

_MOST_ROWS_PER_CHUNK = 65_536
_LEAST_ROWS_PER_CHUNK = 1_000  # H2O copies a frame that has fewer chunks than threads, but none of fewer rows
_CHUNKS_PER_THREAD = 4


class LocalTables:
    """The run's table inside the H2O of this process's JVM, for all its trials.

    `scratch` is this lane's folder. Of each split, only the rows that the last trial asked for are kept.
    """

    def __init__(
        self, java: JVMView, paths: RunPaths, schema: TableSchema, scratch: Path, *, threads: int
    ) -> None:
        self._java = java
        self._paths = paths
        self._schema = schema
        self._scratch = scratch
        self._threads = threads
        self._made = 0
        self._kept: dict[str, tuple[object, H2OFrame, Path]] = {}

    def coded(self, split: SplitName, fold: int | None, order: Mapping[str, Sequence[int]]) -> H2OFrame:
        """The rows that a trial uses for training, validation or testing, in the order of their ids.

        The features in `order` are numbers: the positions of their level codes in it, from 0 on. A level that
        is not there is missing. Other categorical features are categories.
        """
        asked = (None if split == "test" else fold, tuple(order.items()))
        if split in self._kept:
            kept, frame, file = self._kept[split]
            if kept == asked:
                return frame
            del self._kept[split]
            h2o.remove(frame.frame_id)
            file.unlink()
        self._made += 1
        name = f"rows_{split}_{self._made}"
        wanted = wanted_columns(self._schema, order)
        file = self._scratch / f"{name}.columns"
        rows = write_columns(self._paths, split, fold, wanted, file)
        # Several chunks for each thread, of rows enough to be worth the way to them.
        each = -(-rows // (_CHUNKS_PER_THREAD * self._threads))
        per_chunk = min(max(each, _LEAST_ROWS_PER_CHUNK), _MOST_ROWS_PER_CHUNK)
        put_frame(self._java, name, file, wanted, rows, rows_per_chunk=per_chunk)
        frame = h2o.get_frame(name, light=True)
        self._kept[split] = (asked, frame, file)
        return frame


def wanted_columns(schema: TableSchema, order: Mapping[str, Sequence[int]]) -> list[WantedColumn]:
    """The label, the weight and the features in the schema's order.

    The order counts: equally good cuts, and the columns that are drawn for a tree, follow from it.
    """
    codes = tuple(str(code) for code in range(len(schema.classes)))
    found = [WantedColumn(name=LABEL, kind="float32" if codes else "float64", levels=codes)]
    if schema.weighted:
        found.append(WantedColumn(name=WEIGHT, kind="float64"))
    for feature in schema.features:
        if feature.name in order:
            ordered = tuple(order[feature.name])
            found.append(WantedColumn(name=feature.name, kind="float32", order=ordered))
        else:
            found.append(WantedColumn(name=feature.name, kind="float32", levels=feature.levels))
    return found
