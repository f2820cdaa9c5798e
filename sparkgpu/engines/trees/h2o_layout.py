"""Which nodes of an H2O cloud a table's rows lie on, and files that put them there. pyarrow only.

XGBoost trains on the nodes that hold chunks of the training rows, and each of them must hold a chunk of the
validation rows, too: where one has none, H2O fails on that node and waits for it for ever (with categories:
"nthreads must be positive"). Chunks go to nodes by their number alone (water.Key): one to each node, then two
to each, then four, eight, sixteen, sixteen, ... And H2O makes one chunk of a file of one row group, if
it is told so. So the number of files decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.rundir.files import Record
from sparkgpu.words import counted

# Nodes wait for each other several times in each tree. With 14,000 training rows two nodes of one thread, on
# one machine, took 1.1 to 2.5 times as long as one, with 34,000 nine tenths.
MIN_ROWS_PER_NODE = 10_000
# So that no chunk stays empty, of a fold's rows neither.
_MIN_ROWS_PER_CHUNK = 100
_MOST_ROWS_PER_CHUNK = 131_072
# One process writes the files anew: above so many values it would hold up the run for more than seconds, and
# H2O cuts files of that size into chunks for all nodes by itself.
_MOST_VALUES = 100_000_000
_BATCH_ROWS = 16_384


class Layout(Record):
    """How a table is handed over: each split in `pieces` files (None: as it lies there), for `nodes` nodes.

    With one node rows keep their order; `note` says why it is fewer than there are.
    """

    nodes: int
    pieces: int | None = None
    note: str | None = None


def choose_layout(*, train_rows: int, least_rows: int, columns: int, nodes: int, threads: int) -> Layout:
    """The layout over a cloud of `nodes` nodes with `threads` threads each.

    `least_rows` are those of the smallest set of rows that is trained or validated on, which with folds is
    not a whole split.
    """
    if nodes == 1:
        return Layout(nodes=1)
    if train_rows < nodes * MIN_ROWS_PER_NODE:
        return Layout(nodes=1, note=one_node_note(nodes, f"{train_rows:,} training rows are few"))
    useful = [count for count in _chunks_per_node() if count * nodes * _MIN_ROWS_PER_CHUNK <= least_rows]
    if not useful:
        reason = f"{least_rows:,} rows to train or validate on are few"
        return Layout(nodes=1, note=one_node_note(nodes, reason))
    if train_rows * columns > _MOST_VALUES:
        return Layout(nodes=nodes)
    wanted = (
        count
        for count in _chunks_per_node()
        if count >= threads and count * nodes * _MOST_ROWS_PER_CHUNK >= train_rows
    )
    return Layout(nodes=nodes, pieces=nodes * min(next(wanted), max(useful)))


def one_node_note(nodes: int, reason: str) -> str:
    """What a trial's notes say where not all nodes trained."""
    return f"trained on one of {counted(nodes, 'H2O node')}: {reason}"


def _chunks_per_node(most: int = 4_096) -> Iterator[int]:
    """The numbers of chunks on each node with which all nodes hold as many."""
    held, round_ = 0, 1
    while held < most:
        held += round_
        yield held
        round_ = min(2 * round_, 16)


def home(chunk: int, nodes: int) -> int:
    """The node that holds a chunk, as H2O 3.46 places it (``water.Key.D``)."""
    trip = chunk // nodes
    shift = 0 if trip == 0 else 1 if trip <= 2 else 2 if trip <= 6 else 3 if trip <= 14 else 4
    return ((chunk - ((1 << shift) - 1) * nodes) >> shift) % nodes


def write_pieces(files: Sequence[Path], folder: Path, pieces: int) -> list[Path]:
    """Write the rows of `files` to `pieces` files of one row group each in `folder`, in their order.

    All hold as many rows, to within one. At no time more than one piece lies in memory.
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
        words = [field.name for field in whole.schema if pa.types.is_string(field.type)]
        pq.write_table(whole.slice(0, wanted), target, row_group_size=max(1, wanted), use_dictionary=words)
        waiting = whole.slice(wanted).to_batches()
        written.append(target)
    return written


def _batches(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pq.ParquetFile(file) as opened:
            yield from opened.iter_batches(_BATCH_ROWS)
