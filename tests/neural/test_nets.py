"""The parts of the networks."""

from __future__ import annotations

import pytest
import torch

from sparkgpu.config import NeuralConfig
from sparkgpu.engines.neural.nets.build import build_net
from sparkgpu.engines.neural.nets.dropout import Dropout, Place, set_place
from sparkgpu.engines.neural.nets.inputs import CategoryEmbeddings, embedding_dim
from sparkgpu.engines.neural.nets.shape import Shape


def test_embeddings_grow_slower_than_the_vocabulary_and_end_at_eight() -> None:
    assert [embedding_dim(n) for n in (0, 1, 2, 3, 10, 100, 1_000, 100_000)] == [1, 2, 2, 3, 6, 8, 8, 8]


def test_every_column_looks_up_its_own_rows_and_missing_its_own_first_one(device: str) -> None:
    torch.manual_seed(0)
    embeddings = CategoryEmbeddings([3, 7, 3]).to(device)
    codes = torch.tensor([[-1, -1, -1], [2, 6, 2], [0, 0, 0], [-1, 6, -1]], dtype=torch.int32, device=device)
    found = embeddings(codes)
    narrow, wide = embedding_dim(3), embedding_dim(7)
    assert found.shape == (4, 2 * narrow + wide) == (4, embeddings.num_outputs)
    first, third, second = found[:, :narrow], found[:, narrow : 2 * narrow], found[:, 2 * narrow :]
    for column in (first, third):
        assert torch.equal(column[0], column[3]) and len(column[:3].unique(dim=0)) == 3
    assert torch.equal(second[1], second[3]) and len(second[:3].unique(dim=0)) == 3
    assert not torch.equal(first[0], third[0])


def test_a_hundred_thousand_levels_are_no_obstacle(device: str) -> None:
    shape = Shape(num_numeric=1, num_levels=(100_000, 2), num_outputs=2)
    net = build_net(NeuralConfig(architecture="mlp", hidden=(8,), dropout=0.0), shape).to(device)
    codes = torch.tensor([[99_999, 1], [-1, -1]], dtype=torch.int32, device=device)
    out = net(torch.zeros(2, 1, device=device), codes)
    assert out.shape == (2, 1, 2) and not torch.equal(out[0], out[1])


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(p: float, device: str) -> None:
    dropout = placed(Dropout(p).to(device))
    x = torch.ones(1000, 101, device=device, requires_grad=True)
    out = dropout(x)
    out.sum().backward()
    assert abs(float((out == 0).float().mean()) - p) < 0.01
    assert abs(float(out.detach().mean()) - 1) < 0.01
    assert torch.equal(x.grad, out)
    assert torch.equal(dropout.eval()(x), x)


def placed(dropout: Dropout, *, step: int = 0, first_row: int = 0, batch_rows: int = 1000) -> Dropout:
    set_place([dropout], Place(seed=1, step=step, first_row=first_row, batch_rows=batch_rows))
    return dropout


def test_a_row_keeps_its_dropout_mask_in_any_part_of_its_batch(device: str) -> None:
    dropout = Dropout(0.3).to(device)
    x = torch.ones(24, 4, 6, device=device)
    whole = placed(dropout, batch_rows=24)(x)
    parts = [placed(dropout, first_row=row, batch_rows=24)(x[row : row + 5]) for row in range(0, 24, 5)]
    assert torch.equal(torch.cat(parts), whole)
    shards = []
    for index in range(3):
        dropout.shard = (index, 3)
        shards.append(placed(dropout, batch_rows=24)(x[..., :2]))
    assert torch.equal(torch.cat(shards, dim=-1), whole)


def test_dropout_masks_differ_between_steps_and_layers() -> None:
    dropout, x = Dropout(0.5), torch.ones(50, 50)
    first = placed(dropout)(x)
    assert torch.equal(placed(dropout)(x), first)
    assert not torch.equal(placed(dropout, step=1)(x), first)
    dropout.layer = 1
    assert not torch.equal(placed(dropout)(x), first)


def test_dropout_of_zero_passes_everything_on() -> None:
    x = torch.randn(5, 5)
    assert torch.equal(Dropout(0.0)(x), x) and torch.equal(Dropout(0.001)(x), x)
