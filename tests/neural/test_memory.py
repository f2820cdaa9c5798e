"""A step that does not fit the memory is cut into micro-batches; the batch, and what is learned, stay."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from planted import fit, plant
from torch import Tensor

from sparkgpu.engines.neural.nets.net import TabularNet
from sparkgpu.errors import TrialError


@pytest.fixture
def most_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A device on which training on more rows at once than this fails as torch fails."""
    limit = [10**9]
    forward = TabularNet.forward

    def limited(net: TabularNet, *x: Tensor) -> Tensor:
        if net.training and len(x[0]) > limit[0]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return forward(net, *x)

    monkeypatch.setattr(TabularNet, "forward", limited)
    return limit


def test_micro_batches_are_halved_until_they_fit_and_training_goes_on(
    tmp_path: Path, most_rows: list[int]
) -> None:
    paths, schema = plant(tmp_path, "binary")
    whole = fit(paths, schema, dropout=0.2, epochs=3)
    most_rows[0] = 20
    found = fit(paths, schema, dropout=0.2, epochs=3, name="small")
    torch.testing.assert_close(torch.from_numpy(found.test), torch.from_numpy(whole.test), atol=1e-5, rtol=0)
    assert found.record.notes == (
        "out of memory in epoch 1, step 1: micro-batches of 32 rows from there on; the batch stays 64",
        "out of memory in epoch 1, step 1: micro-batches of 16 rows from there on; the batch stays 64",
    )


def test_a_network_of_which_no_row_fits_is_refused_with_a_way_out(
    tmp_path: Path, most_rows: list[int]
) -> None:
    most_rows[0] = 0
    with pytest.raises(TrialError) as refused:
        fit(*plant(tmp_path, "binary", rows=100))
    assert str(refused.value) == (
        "neural-s7: the network does not fit the device's memory, even with one row at a time: lower "
        'neural.hidden, or spread it with neural.strategy = "fsdp".'
    )


@pytest.mark.gpu
def test_a_real_lack_of_memory_is_survived(tmp_path: Path) -> None:
    device = torch.device("cuda:0")
    free, _ = torch.cuda.mem_get_info(device)
    filler = torch.empty(free - 2**30, dtype=torch.uint8, device=device)
    settings = {"hidden": (8192, 8192, 8192), "batch_size": 65_536, "epochs": 2, "learning_rate": 1e-4}
    found = fit(*plant(tmp_path, "binary", rows=200_000), "cuda:0", **settings)
    del filler
    assert any("out of memory" in note for note in found.record.notes)
    assert found.accuracy() > 0.8
