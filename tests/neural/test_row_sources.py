"""The same rows are trained on from every place: on the device, streamed, or through a DataLoader."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from planted import fit, plant

from sparkgpu.core.config.models import DataLoaderConfig, NeuralConfig
from sparkgpu.core.errors import TrialError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import RowGroups, read_rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.preprocess import QuantileNormal
from sparkgpu.neural.rows import fitted
from sparkgpu.neural.rows.fitted import place_rows
from sparkgpu.neural.rows.loader import LoadedSource
from sparkgpu.neural.rows.resident import ResidentRows, ResidentSource, raw_rows
from sparkgpu.neural.rows.stream import Coming, CudaUpload, StreamedSource, _Pools, fit_transform
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


def streamed(
    table: tuple[RunPaths, TableSchema], pool_rows: int = 4000, upload: CudaUpload | None = None
) -> StreamedSource:
    paths, schema = table
    groups = RowGroups(paths, schema, "train")
    rows = schema.splits["train"]
    return StreamedSource(
        groups,
        rows,
        transform=fit_transform(QuantileNormal, groups, rows, generator=torch.Generator().manual_seed(0)),
        objective=Objective(task="binary"),
        mean_weight=1.25,
        pool_rows=pool_rows,
        device=torch.device("cpu"),
        upload=upload,
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


@pytest.mark.parametrize("kind", ["resident", "stream", "dataloader"])
def test_each_epoch_holds_every_row_once_in_an_order_of_its_own(
    table: tuple[RunPaths, TableSchema], kind: str
) -> None:
    rows = read_rows(*table, "train")
    raw = raw_rows(rows, Objective(task="binary"), mean_weight=1.25)
    source = {
        "resident": lambda: ResidentSource(rows=raw),
        "stream": lambda: streamed(table),
        "dataloader": lambda: LoadedSource(raw, DataLoaderConfig(), torch.device("cpu")),
    }[kind]()
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


class Noted(CudaUpload):
    """To this device: an upload that notes when the copy of a pool begins and when its rows are asked for."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, rows: ResidentRows) -> Coming:
        self.notes.append("begin")
        return rows, None

    def finish(self, coming: Coming) -> ResidentRows:
        self.notes.append("finish")
        return coming[0]


def test_each_pool_is_on_its_way_while_the_one_before_it_is_used() -> None:
    number_pools, noted = 4, Noted()
    asked = [threading.Event() for _ in range(number_pools + 1)]

    def filled() -> Iterator[ResidentRows]:
        for number in range(number_pools):
            asked[number].set()  # so the pool before it waits to be used
            value = torch.full((3,), number)
            yield ResidentRows(numeric_NG=value, codes_NK=value, target_N=value, weight_N=None)
        asked[number_pools].set()

    with _Pools(filled(), noted) as pools:
        for number in range(number_pools):
            rows = pools.next()
            assert rows is not None and int(rows.target_N[0]) == number
            noted.notes.append("step")
            assert asked[min(number + 2, number_pools)].wait(60)
            pools.look_ahead()
            pools.look_ahead()  # begins no second copy
            noted.notes.append("step")
        assert pools.next() is None
    first, later = ["begin", "finish", "step"], ["begin", "step", "finish", "step"]
    assert noted.notes == [*first, *later * (number_pools - 1), "step"]


def test_rows_that_are_uploaded_make_the_same_batches(table: tuple[RunPaths, TableSchema]) -> None:
    noted = Noted()
    assert all(map(torch.equal, seen(streamed(table, upload=noted)), seen(streamed(table))))
    assert noted.notes.count("begin") == noted.notes.count("finish") > 2


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


def test_workers_of_a_dataloader_refuse_a_temporary_folder_whose_sockets_have_too_long_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", f"/tmp/{'x' * 80}")
    rows = ResidentRows(
        numeric_NG=torch.zeros(4, 1), codes_NK=torch.zeros(4, 0), target_N=torch.zeros(4), weight_N=None
    )
    with pytest.raises(TrialError, match=r"at most 75 letters, and /tmp/x+ has 85\. Set TMPDIR"):
        LoadedSource(rows, DataLoaderConfig(num_workers=2), torch.device("cpu"))
    assert len(LoadedSource(rows, DataLoaderConfig(), torch.device("cpu"))) == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataloader_gives_the_same_batches_and_so_the_same_network(tmp_path: Path, workers: int) -> None:
    paths, schema = plant(tmp_path, "multiclass", rows=600)
    resident = fit(paths, schema, name="resident", dropout=0.1, epochs=2)
    options = {"num_workers": workers}
    loaded = fit(paths, schema, name="loaded", dropout=0.1, epochs=2, data="dataloader", dataloader=options)
    assert (loaded.test == resident.test).all()


def test_folds_are_streamed_apart(tmp_path: Path) -> None:
    paths, schema = plant(tmp_path, "binary", rows=600, folds=3)
    ids = {
        split: np.concatenate([b.row_id_N for b in RowGroups(paths, schema, split, fold=1).blocks()])
        for split in ("train", "valid")
    }
    for split, found in ids.items():
        assert (np.sort(found) == read_rows(paths, schema, split, fold=1).row_id_N).all()  # type: ignore[arg-type]


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
