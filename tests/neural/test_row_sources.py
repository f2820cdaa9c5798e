"""The same rows are trained on from every place: on the device, or streamed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from made_table import feature, made_rows, write_splits
from planted import fit, plant

from sparkgpu.core.config.model_keys import NeuralConfig
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import RowGroups, read_rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.preprocess import QuantileNormal
from sparkgpu.neural.rows import fitted
from sparkgpu.neural.rows.fitted import place_rows
from sparkgpu.neural.rows.resident import ResidentSource, raw_rows
from sparkgpu.neural.rows.stream import StreamedSource
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.objective import Objective

ROWS = 30_000
GROUP_ROWS = 1500


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunPaths, TableSchema]:
    """A table whose training rows lie in many row groups, with weights."""
    paths, schema = plant(
        tmp_path_factory.mktemp("table"), "binary", rows=ROWS, weight_N=np.linspace(0.5, 2.0, ROWS)
    )
    file = paths.split("train") / "part-00000.parquet"
    pq.write_table(pq.read_table(file, partitioning=None), file, row_group_size=GROUP_ROWS)
    return paths, schema


def streamed(table: tuple[RunPaths, TableSchema], device: str = "cpu") -> StreamedSource:
    paths, schema = table
    groups = RowGroups(paths, schema, "train")
    rows = schema.splits["train"]
    blocks = (torch.from_numpy(block.numeric_NF) for block in groups.blocks())
    return StreamedSource(
        groups,
        rows,
        transform=QuantileNormal.fit_blocks(blocks, rows, generator=torch.Generator().manual_seed(0)),
        objective=Objective(task="binary"),
        mean_weight=1.25,
        pool_rows=4000,
        device=torch.device(device),
    )


def seen(source: Any, *, epoch: int = 1, first: int = 0) -> list[torch.Tensor]:
    """The transformed column `skewed`, nearly unique, of each batch."""
    batches = source.batches(
        seed=3, epoch=epoch, batch_size=256, first=first, part=lambda rows: slice(0, rows)
    )
    return [batch.numeric_NG[:, 0].clone() for batch, _ in batches]


def places(table: tuple[RunPaths, TableSchema], batches: list[torch.Tensor]) -> list[np.ndarray]:
    """Where in the table's file the rows of each batch lie, told by their values of the column `skewed`."""
    whole = torch.from_numpy(read_rows(*table, "train").numeric_NF)
    transform = QuantileNormal.fit(whole, generator=torch.Generator().manual_seed(0))
    value_N = transform(whole)[:, 0].numpy()
    order_N = np.argsort(value_N)
    return [order_N[np.searchsorted(value_N[order_N], batch.numpy())] for batch in batches]


def test_every_batch_of_a_stream_mixes_several_row_groups(table: tuple[RunPaths, TableSchema]) -> None:
    batches = seen(streamed(table))
    for place_B in places(table, [batch for batch in batches if len(batch) == 256]):
        _, count_G = np.unique(place_B // GROUP_ROWS, return_counts=True)
        assert len(count_G) >= 3 and count_G.max() < 0.6 * 256
        assert np.abs(np.diff(place_B)).mean() > GROUP_ROWS / 2  # nor do neighbours follow each other


def part_of(rank: int, ranks: int) -> Callable[[int], slice]:
    """As `Strategy.part` cuts batches."""
    strategy = SimpleNamespace(data_rank=rank, data_size=ranks)
    return lambda rows: Strategy.part(strategy, rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_size", [256, 1000])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_of_a_stream_divide_the_rows_and_the_reading(
    table: tuple[RunPaths, TableSchema], monkeypatch: pytest.MonkeyPatch, ranks: int, batch_size: int
) -> None:
    decoded: list[int] = []
    real = RowGroups._decoded
    monkeypatch.setattr(
        RowGroups, "_decoded", lambda self, batch: decoded.append(batch.num_rows) or real(self, batch)
    )
    rows, in_file = table[1].splits["train"], torch.cat(seen(streamed(table))).sort().values
    shares = []
    for epoch in (1, 2):
        by_rank = []
        for rank in range(ranks):
            source, part = streamed(table), part_of(rank, ranks)
            decoded.clear()
            batches = list(source.batches(seed=3, epoch=epoch, batch_size=batch_size, first=0, part=part))
            assert sum(decoded) < rows / ranks + 2.5 * GROUP_ROWS
            whole = [batch_size] * (rows // batch_size) + [rows % batch_size] * (rows % batch_size > 0)
            assert [size for _, size in batches] == whole
            own = [batch.numeric_NG[:, 0] for batch, _ in batches]
            assert [len(one) for one in own] == [len(range(*part(size).indices(size))) for size in whole]
            again = source.batches(seed=3, epoch=epoch, batch_size=batch_size, first=5, part=part)
            assert all(map(torch.equal, (batch.numeric_NG[:, 0] for batch, _ in again), own[5:]))
            by_rank.append(torch.cat(own))
        assert torch.equal(torch.cat(by_rank).sort().values, in_file)
        shares.append(by_rank[0])
    assert not torch.equal(shares[0].sort().values, shares[1].sort().values)


def test_a_rank_without_rows_in_the_last_batch_takes_its_step_with_the_others(
    table: tuple[RunPaths, TableSchema],
) -> None:
    rows = table[1].splits["train"]
    batch_size = (rows - 2) // 3
    while rows % batch_size not in (1, 2):
        batch_size -= 1
    batches = streamed(table).batches(seed=3, epoch=1, batch_size=batch_size, first=0, part=part_of(3, 4))
    *_, (batch, whole) = batches
    assert (len(batch), whole) == (0, rows % batch_size)


def test_shares_of_a_fold_hold_its_rows_once(tmp_path: Path) -> None:
    rows = 5000
    fold_N = np.random.default_rng(1).integers(0, 3, rows)
    schema = TableSchema(
        source="made", target="y", task="regression", features=(feature("x"),), folds=3, rows=rows,
        splits={"train": rows}, fingerprint="",
    )  # fmt: skip
    made = made_rows(schema.features, {"x": np.arange(rows)}, np.zeros(rows), fold_N=fold_N)
    write_splits(RunPaths(root=tmp_path), made, np.full(rows, "train"), group_rows=700)
    groups = RowGroups(RunPaths(root=tmp_path), schema, "train", fold=1)
    count = int((fold_N != 1).sum())
    ends = [0, count // 3, count // 2, count]
    found = [
        block.row_id_N
        for begin, end in pairwise(ends)
        for block in groups.share(begin, end, np.random.default_rng(4)).blocks()
    ]
    assert sorted(np.concatenate(found)) == np.flatnonzero(fold_N != 1).tolist()


@pytest.mark.parametrize("kind", ["resident", "stream"])
def test_each_epoch_holds_every_row_once_in_an_order_of_its_own(
    table: tuple[RunPaths, TableSchema], kind: str
) -> None:
    rows = read_rows(*table, "train")
    raw = raw_rows(rows, Objective(task="binary"), mean_weight=1.25)
    source = ResidentSource(rows=raw) if kind == "resident" else streamed(table)
    batches, count = seen(source), table[1].splits["train"]
    assert [len(batch) for batch in batches] == [256] * (count // 256) + [count % 256]
    orders = [torch.cat(seen(source, epoch=epoch)) for epoch in (1, 2, 3)]
    in_file = orders[0].sort().values
    for order in orders:
        assert torch.equal(order.sort().values, in_file)
    if kind == "stream":  # which fits its transform to the files
        expected = QuantileNormal.fit(raw.numeric_NG, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(expected(raw.numeric_NG)[:, 0].sort().values, in_file)
    unshuffled = raw.numeric_NG[:, 0].argsort().argsort()
    ranks = [order.argsort().argsort() for order in orders]
    for one, other in combinations([unshuffled, *ranks], 2):
        # Independent orders of so many rows have next to no rank correlation.
        assert abs(float(torch.corrcoef(torch.stack([one, other]).double())[0, 1])) < 0.05


def test_an_epoch_repeats_itself_another_differs_and_a_restart_goes_on(
    table: tuple[RunPaths, TableSchema],
) -> None:
    source = streamed(table)
    first = seen(source)
    assert all(map(torch.equal, seen(source), first))
    assert not torch.equal(seen(source, epoch=2)[0], first[0])
    assert all(map(torch.equal, seen(source, first=20), first[20:]))


@pytest.mark.gpu
def test_a_gpu_streams_the_rows_that_a_cpu_does(table: tuple[RunPaths, TableSchema]) -> None:
    settings: dict[str, Any] = {"epochs": 1, "batch_size": 256, "data": "stream", "precision": "float32"}
    on_cpu = fit(*table, name="cpu", **settings)
    on_gpu = fit(*table, "cuda:0", name="gpu", **settings)
    assert on_gpu.accuracy() == pytest.approx(on_cpu.accuracy(), abs=0.01)


def test_streamed_training_learns_what_resident_training_does(table: tuple[RunPaths, TableSchema]) -> None:
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 256}
    resident = fit(*table, name="resident", **settings)
    stream = fit(*table, name="stream", data="stream", **settings)
    assert stream.accuracy() > 0.85
    assert abs(stream.accuracy() - resident.accuracy()) < 0.01


def test_rows_that_do_not_fit_are_streamed_and_it_is_said(
    table: tuple[RunPaths, TableSchema], monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = torch.device("cpu")
    assert place_rows(NeuralConfig(), table[1], 1000, cpu) == ("resident", None)
    monkeypatch.setattr(fitted, "_SHARE_OF_HOST", 0.0)
    found, note = place_rows(NeuralConfig(), table[1], 50_000_000, cpu)
    assert found == "stream"
    assert note == (
        "the training rows need 3.9 GiB and cpu can spare 0.0, so they are streamed from the table's files"
    )
    assert place_rows(NeuralConfig(data="resident"), table[1], 50_000_000, cpu) == ("resident", None)
