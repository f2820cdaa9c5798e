"""Which nodes of an H2O cloud hold a table's rows, and the files that place them there. pyarrow only.

XGBoost trains on the nodes that hold chunks of the training rows. Each of these must also hold a chunk of the
validation rows: if one has none, H2O fails on that node and waits for it forever (with categories: "nthreads
must be positive"). Only its number decides on which node a chunk lands (water.Key): first one chunk for each
node, then two for each, then four, eight, sixteen, sixteen, ... On request, H2O makes one chunk of a file
with one row group. So the number of files decides where rows are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.core.words import counted

# Nodes wait for each other several times in each tree. Two nodes with one thread each, on one machine, took
# 1.1 to 2.5 times as long as one node with 14,000 training rows, and 0.9 times as long with 34,000.
MIN_ROWS_PER_NODE = 10_000
CHUNKS_PER_NODE = 31  # 1 + 2 + 4 + 8 + 16: all nodes hold equally many
_MIN_ROWS_PER_CHUNK = 10  # so that no chunk is empty, also for the rows of a fold
# One process rewrites the files. Above this many values that would delay the run by more than seconds, and
# H2O itself cuts files of that size into chunks for all nodes.
MOST_VALUES = 100_000_000
_BATCH_ROWS = 16_384


def why_one_node(*, train_rows: int, least_rows: int, nodes: int) -> str | None:
    """Why only one of several nodes can train on a table; None if all can.

    `least_rows` is the size of the smallest set of rows for training or validation; with folds that is not a
    whole split.
    """
    if nodes == 1:
        return None
    if train_rows < nodes * MIN_ROWS_PER_NODE:
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
