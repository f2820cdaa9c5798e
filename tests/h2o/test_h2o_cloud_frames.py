"""A table is cut so that every node of an H2O cloud gets rows of every split."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.h2o.cloud_frames import CHUNKS_PER_NODE, why_one_node, write_pieces


def home(chunk: int, nodes: int) -> int:
    """The node on which H2O 3.46 places a chunk (``water.Key.D``): they go round once, in pairs, in fours."""
    trip = chunk // nodes
    shift = 0 if trip == 0 else 1 if trip <= 2 else 2 if trip <= 6 else 3 if trip <= 14 else 4
    return ((chunk - ((1 << shift) - 1) * nodes) >> shift) % nodes


@pytest.mark.parametrize("nodes", [2, 3, 16])
def test_every_node_holds_as_many_chunks_of_every_split(nodes: int) -> None:
    held = Counter(home(chunk, nodes) for chunk in range(nodes * CHUNKS_PER_NODE))
    assert held == dict.fromkeys(range(nodes), CHUNKS_PER_NODE)


@pytest.mark.parametrize(
    ("train", "least", "few"),
    [(700, 150, "700 training rows"), (50_000, 40, "40 rows to train or validate on")],
)
def test_a_small_table_stays_on_one_node_and_says_so(train: int, least: int, few: str) -> None:
    found = why_one_node(train_rows=train, least_rows=least, nodes=2)
    assert found == f"trained on one of 2 H2O nodes: {few} are too few for more"


def test_all_nodes_train_on_a_larger_table_and_one_node_needs_no_reason() -> None:
    assert why_one_node(train_rows=34_000, least_rows=7_000, nodes=2) is None
    assert why_one_node(train_rows=700, least_rows=150, nodes=1) is None


def test_pieces_hold_all_rows_in_order_and_are_one_row_group_each(tmp_path: Path) -> None:
    rows = np.arange(50_001)
    whole = pa.table({"row_id": rows, "x": (rows % 7).astype(np.float32)})
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(whole.slice(0, 20_000), files[0], row_group_size=9_000)
    pq.write_table(whole.slice(20_000), files[1])
    pieces = write_pieces(files, tmp_path / "pieces", 6)
    found = [pq.read_table(piece) for piece in pieces]
    assert sorted({table.num_rows for table in found}) == [8_333, 8_334]
    assert {pq.read_metadata(piece).num_row_groups for piece in pieces} == {1}
    assert pa.concat_tables(found).equals(whole)
