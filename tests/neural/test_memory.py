"""A step that does not fit the memory is cut into micro-batches; the batch, and what is learned, stay."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from planted import fit, plant
from torch import Tensor

from sparkgpu.engines.neural.nets.tabular_net import TabularNet
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
    """The network fits what is left of the device, a step on the whole batch does not, on half of it it may.

    Three layers of 512 have 0.53 million weights; these, their gradients and Adam's two moments take 16
    bytes each: 8 MiB. The 60,000 training rows are one batch; what one layer gives for them takes
    60,000 x 512 x 4 bytes = 117 MiB. A forward pass keeps that of each layer's ReLU for the gradient and
    holds its linear part beside it for a moment: with two layers kept and the third's linear part there are
    351 MiB, more than the 320 that are left. Of 30,000 rows a layer gives 59 MiB; the backward pass holds
    three kept ones and two gradients, 293 MiB, and should that be too much beside the weights and the
    table, 15,000 rows take half of it. The 20,000 rows to validate take 2 x 39 MiB.
    """
    device = torch.device("cuda:0")
    one = torch.ones((64, 64), device=device)
    torch.mm(one, one)  # what cuBLAS takes for itself, up to 32 MiB, is gone before the rest is counted
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    filler = torch.empty(free - 320 * 2**20, dtype=torch.uint8, device=device)
    settings = {"hidden": (512, 512, 512), "batch_size": 65_536, "epochs": 12, "learning_rate": 2e-3}
    found = fit(*plant(tmp_path, "binary", rows=100_000), "cuda:0", precision="float32", **settings)
    del filler
    assert found.record.notes[0] == (
        "out of memory in epoch 1, step 1: micro-batches of 30000 rows from there on, the batch stays 65536"
    )
    assert found.accuracy() > 0.9  # on a CPU it comes to 0.95
