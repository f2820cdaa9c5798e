"""The run's table inside an H2O cloud: parsed once, on the nodes that will train on it.

XGBoost trains on the nodes that hold chunks of the training rows. Each of these must also hold a chunk of the
validation rows: if one has none, H2O fails on that node and waits for it forever (with categories: "nthreads
must be positive"). Only its number decides on which node a chunk lands (water.Key): first one chunk for each
node, then two for each, then four, eight, sixteen, sixteen, ... On request, H2O makes one chunk of a file
with one row group. So the number of files decides where rows are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import h2o
import pyarrow as pa
import pyarrow.parquet as pq
from h2o.expr import ExprNode

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import files_of
from sparkgpu.core.table.schema import FOLD, LABEL, WEIGHT, SplitName, TableSchema
from sparkgpu.core.words import counted
from sparkgpu.h2o.client_internals import frame_of
from sparkgpu.h2o.jobs import Cloud

if TYPE_CHECKING:
    from h2o import H2OFrame

# Nodes wait for each other several times in each tree. Two nodes with one thread each, on one machine, took
# 1.1 to 2.5 times as long as one node with 14,000 training rows, and 0.9 times as long with 34,000.
_MIN_ROWS_PER_NODE = 10_000
CHUNKS_PER_NODE = 31  # 1 + 2 + 4 + 8 + 16: all nodes hold equally many
_MIN_ROWS_PER_CHUNK = 10  # so that no chunk is empty, also for the rows of a fold
# One process rewrites the files. Above this many values that would delay the run by more than seconds, and
# H2O itself cuts files of that size into chunks for all nodes.
_MOST_VALUES = 100_000_000
_BATCH_ROWS = 16_384


class H2OTables:
    """The run's table inside one H2O cloud, for all its trials.

    `scratch` is a folder that all its nodes share. The level codes of the files become H2O's categories, or
    numbers in another order, inside the cloud: files too large to write again are parsed as they lie. On one
    node the rows are in the order of their ids; a cloud of several nodes has no row order.
    """

    def __init__(self, paths: RunPaths, schema: TableSchema, scratch: Path, cloud: Cloud) -> None:
        self._paths = paths
        self._schema = schema
        self._scratch = scratch
        self._nodes = cloud.nodes
        self._frames: dict[str, H2OFrame] = {}
        self._coded: dict[object, H2OFrame] = {}
        rows = schema.splits["train"]
        self._note = why_one_node(
            train_rows=rows,
            least_rows=rows // schema.folds if schema.folds else min(rows, schema.splits["valid"]),
            nodes=len(cloud.nodes),
        )
        all_train = len(cloud.nodes) > 1 and not self._note
        self._cuts = all_train and rows * len(schema.features) <= _MOST_VALUES

    def coded(
        self, split: SplitName, fold: int | None, order: Mapping[str, Sequence[int]], unit: float = 1.0
    ) -> H2OFrame:
        """The rows that a trial uses, coded as those of `LocalTables.coded`."""
        folded = fold is not None and split != "test"
        whole = "train" if folded else split
        key = (whole, tuple(order.items()), unit)
        if key not in self._coded:
            self._coded[key] = _coded(self._whole(whole), self._schema, order, unit)
        rows = self._coded[key]
        if not folded:
            return rows
        return rows[rows[FOLD] != fold, :] if split == "train" else rows[rows[FOLD] == fold, :]

    def why_one_node(self, train: H2OFrame, valid: H2OFrame) -> str | None:
        """Why only one of several nodes may train on these rows; None if all may.

        It checks where the rows really are, since a node without validation rows would make H2O wait forever.
        """
        if len(self._nodes) == 1 or self._note:
            return self._note
        if all(self._nodes <= _nodes_of(frame) for frame in (train, valid)):
            return None
        return one_node_note(len(self._nodes), "H2O put no rows on some of the others")

    def _whole(self, split: str) -> H2OFrame:
        if split not in self._frames:
            folder = self._paths.split(split)
            files = files_of(folder)
            if self._cuts:
                pieces = CHUNKS_PER_NODE * len(self._nodes)
                files = write_pieces(files, self._scratch / f"pieces-{split}", pieces)
            setup = h2o.parse_setup(h2o.lazy_import([str(file) for file in files]), header=0)
            if self._cuts:  # each is one chunk; H2O has a rule of its own for other files
                setup["chunk_size"] = max(file.stat().st_size for file in files)
            self._frames[split] = h2o.parse_raw(setup, first_line_is_header=setup["check_header"])
        return self._frames[split]


def _coded(rows: H2OFrame, schema: TableSchema, order: Mapping[str, Sequence[int]], unit: float) -> H2OFrame:
    """As one expression: H2OFrame's own methods would ask the server several times for each column."""
    own = [name for name in (LABEL, WEIGHT, FOLD) if name in rows.names]
    names = [*own, *(feature.name for feature in schema.features)]
    made = {name: rows[name].match(list(codes), start_index=0) for name, codes in order.items()}
    if schema.classes:
        made[LABEL] = _as_categories(rows[LABEL], [str(code) for code in range(len(schema.classes))])
    elif unit != 1:
        made[LABEL] = rows[LABEL] / unit
    for feature in schema.categorical:
        if feature.name not in order:
            made[feature.name] = _as_categories(rows[feature.name], feature.levels)
    others = [name for name in names if name not in made]
    found = ExprNode("cbind", *([rows[others]] if others else []), *made.values())
    places = list(range(len(names)))
    named = ExprNode("colnames=", found, places, [*others, *made])
    position = {name: place for place, name in enumerate([*others, *made])}
    return frame_of(ExprNode("cols_py", named, [position[name] for name in names]))


def _as_categories(codes: H2OFrame, texts: Sequence[str]) -> H2OFrame:
    made = frame_of(ExprNode("as.factor", codes))
    held = [found for levels in made.levels() for found in levels]
    return made.set_levels([texts[int(code)] for code in held]) if held else made


def _nodes_of(frame: H2OFrame) -> set[str]:
    found = h2o.api(f"GET /3/Frames/{frame.frame_id}", data={"row_count": 1, "column_count": 1})
    table = found["frames"][0]["distribution_summary"]
    rows = table.col_header.index("number_of_rows")
    return {str(row[0]) for row in table.cell_values if row[rows]}


def why_one_node(*, train_rows: int, least_rows: int, nodes: int) -> str | None:
    """Why only one of several nodes can train on a table; None if all can.

    `least_rows` is the size of the smallest set of rows for training or validation; with folds that is not a
    whole split.
    """
    if nodes == 1:
        return None
    if train_rows < nodes * _MIN_ROWS_PER_NODE:
        return one_node_note(nodes, f"{train_rows:,} training rows are too few for more")
    if least_rows < nodes * CHUNKS_PER_NODE * _MIN_ROWS_PER_CHUNK:
        return one_node_note(nodes, f"{least_rows:,} rows to train or validate on are too few for more")
    return None


def one_node_note(nodes: int, reason: str) -> str:
    """The trial's note if not all nodes trained."""
    return f"trained on one of {counted(nodes, 'H2O node')}: {reason}"


def write_pieces(files: Sequence[Path], folder: Path, pieces: int) -> list[Path]:
    """Write the rows of `files`, in order, to `pieces` files in `folder` with one row group each.

    All files hold equally many rows, to within one. At most one piece is in memory at a time.
    """
    folder.mkdir(parents=True)
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    batches = _batches(files)
    waiting: list[pa.RecordBatch] = []
    written = []
    for piece in range(pieces):
        wanted = rows * (piece + 1) // pieces - rows * piece // pieces
        held = sum(batch.num_rows for batch in waiting)
        while held < wanted:
            waiting.append(next(batches))
            held += waiting[-1].num_rows
        whole = pa.Table.from_batches(waiting)
        target = folder / f"piece-{piece:05d}.parquet"
        pq.write_table(whole.slice(0, wanted), target, row_group_size=max(1, wanted), use_dictionary=False)
        waiting = whole.slice(wanted).to_batches()
        written.append(target)
    return written


def _batches(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pq.ParquetFile(file) as opened:
            yield from opened.iter_batches(_BATCH_ROWS)
