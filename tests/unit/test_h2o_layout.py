"""A table is cut so that every node of an H2O cloud gets rows of every split."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.engines.trees.h2o_layout import Layout, choose_layout, home, write_pieces


@pytest.mark.parametrize("nodes", [2, 3, 5, 16])
@pytest.mark.parametrize("threads", [1, 2, 4, 6, 32])
def test_every_node_holds_as_many_chunks_of_every_split(nodes: int, threads: int) -> None:
    layout = choose_layout(train_rows=3_000_000, least_rows=600_000, columns=10, nodes=nodes, threads=threads)
    assert layout.pieces is not None
    held = Counter(home(chunk, nodes) for chunk in range(layout.pieces))
    assert set(held) == set(range(nodes))
    assert len(set(held.values())) == 1
    assert held[0] >= threads


def test_chunks_go_round_the_nodes_once_then_in_pairs_then_in_fours() -> None:
    assert [home(chunk, 2) for chunk in range(14)] == [0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]
    assert [home(chunk, 3) for chunk in range(9)] == [0, 1, 2, 0, 0, 1, 1, 2, 2]


def test_chunks_that_would_be_small_are_fewer_than_threads() -> None:
    layout = choose_layout(train_rows=34_000, least_rows=7_000, columns=14, nodes=2, threads=64)
    assert layout == Layout(nodes=2, pieces=2 * 31)


def test_a_small_table_stays_on_one_node_and_says_so() -> None:
    layout = choose_layout(train_rows=700, least_rows=150, columns=20, nodes=2, threads=1)
    assert layout == Layout(
        nodes=1, note="trained on one of 2 H2O nodes: 700 training rows are too few for more"
    )


def test_few_validation_rows_keep_a_table_on_one_node() -> None:
    layout = choose_layout(train_rows=50_000, least_rows=40, columns=20, nodes=2, threads=1)
    assert layout.nodes == 1
    assert (
        layout.note == "trained on one of 2 H2O nodes: 40 rows to train or validate on are too few for more"
    )


def test_one_node_and_large_tables_are_handed_over_as_they_lie() -> None:
    assert choose_layout(train_rows=700, least_rows=150, columns=20, nodes=1, threads=8) == Layout(nodes=1)
    assert choose_layout(train_rows=10**8, least_rows=10**7, columns=30, nodes=4, threads=8) == Layout(
        nodes=4
    )


def test_pieces_hold_all_rows_in_order_and_are_one_row_group_each(tmp_path: Path) -> None:
    rows = np.arange(50_001)
    whole = pa.table({"row_id": rows, "word": pa.array([f"w{row % 7}" for row in rows])})
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(whole.slice(0, 20_000), files[0], row_group_size=9_000)
    pq.write_table(whole.slice(20_000), files[1])
    pieces = write_pieces(files, tmp_path / "pieces", 6)
    found = [pq.read_table(piece) for piece in pieces]
    assert sorted({table.num_rows for table in found}) == [8_333, 8_334]
    assert {pq.read_metadata(piece).num_row_groups for piece in pieces} == {1}
    assert pa.concat_tables(found).equals(whole)
