"""The parts of the networks."""

from __future__ import annotations

import pytest
import torch
from planted import parameters

from sparkgpu.neural.nets.dropout import Dropout, HeldMask, Place, set_place
from sparkgpu.neural.nets.inputs import (
    CategoryEmbeddings,
    CosineEmbeddings,
    PiecewiseEmbeddings,
    embedding_dim,
)
from sparkgpu.neural.nets.network import InputShape, build_net
from sparkgpu.neural.nets.tabm import Adapter, FirstBlock, MembersOutput, TabMInput, find_bins


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


@pytest.mark.parametrize("threads", [1, 2])
def test_the_gradient_of_an_embedding_is_torchs_own_bit_for_bit(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        (table,) = CategoryEmbeddings([2_000], dim=8).tables
        theirs = torch.nn.Embedding(2_001, 8, _weight=table.weight.detach().clone())
        random = torch.Generator().manual_seed(0)
        codes = torch.randint(0, 2_001, (1_024, 3), generator=random, dtype=torch.int32)
        codes[:, 0] %= 3
        weight = torch.randn(1_024, 3, 8, generator=random)
        for embedding in (table, theirs):
            (embedding(codes) * weight).sum().backward()
        assert torch.equal(table(codes), theirs(codes))
        assert torch.equal(table.weight.grad, theirs.weight.grad)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("is_held", [False, True])
def test_dropout_in_bfloat16_keeps_the_mean_as_in_float32(is_held: bool, device: str) -> None:
    dropout = placed(Dropout(0.1).to(device))
    dropout.held = HeldMask() if is_held else None
    x = torch.rand(1000, 101, device=device) + 0.5
    plain, reduced = dropout(x), dropout(x.bfloat16())
    assert reduced.dtype is torch.bfloat16
    assert float(reduced.float().mean() / plain.mean()) == pytest.approx(1, abs=5e-4)  # not .9967


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(p: float, device: str) -> None:
    dropout = placed(Dropout(p).to(device))
    x = torch.ones(1000, 101, device=device, requires_grad=True)
    out = dropout(x)
    out.sum().backward()
    assert abs(float((out == 0).float().mean()) - p) < 0.01
    assert abs(float(out.detach().mean()) - 1) < 0.01
    assert torch.equal(x.grad, out)
    assert torch.equal(dropout.eval()(x), x) and torch.equal(Dropout(0.0)(x), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", [torch.nn.ReLU(), torch.nn.SELU(), None])
def test_dropout_in_one_pass_is_dropout_after_the_activation(
    activation: torch.nn.Module | None, dtype: torch.dtype
) -> None:
    dropout = placed(Dropout(0.3), batch_rows=64)
    x = torch.randn(64, 3, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
    outward, results = torch.randn(64, 3, 40).to(dtype), []
    for one_pass in (False, True):
        leaf, kept = x.clone().requires_grad_(), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):  # noqa: B023
            if one_pass:
                out = dropout._kept_in_one_pass(leaf, activation, dropout._drawn(leaf))
            else:
                out = dropout._kept(leaf if activation is None else activation(leaf), dropout._drawn(leaf))
        out.backward(outward)
        assert out.dtype is leaf.grad.dtype is dtype
        results.append((out, leaf.grad))
    if not isinstance(activation, torch.nn.SELU):  # a byte of each value, where torch's own keep their values
        assert sum(tensor.nbytes for tensor in kept) == x.numel()
    for found, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, expected, rtol=2**-8 if dtype is torch.bfloat16 else 1e-6, atol=0)


def placed(dropout: Dropout, *, step: int = 0, first_row: int = 0, batch_rows: int = 1000) -> Dropout:
    set_place([dropout], Place(seed=1, step=step, first_row=first_row, batch_rows=batch_rows))
    return dropout


def test_a_row_keeps_its_dropout_mask_in_any_part_of_its_batch_and_only_there(
    device: str,
) -> None:
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
    dropout.shard = (0, 1)
    assert not torch.equal(placed(dropout, step=1, batch_rows=24)(x), whole)
    dropout.layer = 1
    assert not torch.equal(placed(dropout, batch_rows=24)(x), whole)


def test_bins_hold_as_many_rows_each_and_a_common_value_takes_one_edge() -> None:
    even = torch.linspace(-3, 3, 1001)
    rare = torch.cat([torch.zeros(921), torch.linspace(1, 5, 80)])
    two, constant = torch.tensor([0.0, 1.0]).repeat(501)[:1001].sort().values, torch.full((1001,), 2.0)
    bins = find_bins(torch.stack([even, rare, two, constant], 1), 8)
    torch.testing.assert_close(bins[0], torch.linspace(-3, 3, 9), atol=0.01, rtol=0)
    assert bins[1][0] == 0 and len(bins[1]) == 9 and bins[1][-1] == 5
    assert bins[2].tolist() == [0.0, 1.0] and bins[3].tolist() == [1.0, 3.0]


def test_a_member_weighs_rows_or_the_layer_with_the_same_result() -> None:
    torch.manual_seed(0)
    block = FirstBlock([3, 2], 16, 0.0, members=4)
    x = torch.randn(32, 5)
    merged = block(x)
    block.may_merge = False
    assert merged.shape == (32, 4, 16)
    torch.testing.assert_close(block(x), merged)


@pytest.mark.parametrize(
    ("num_numeric", "num_levels"), [(0, (3, 100)), (4, ()), (2, (100_000, 2)), (0, (50,))]
)
def test_tabm_takes_tables_of_any_kind_of_column(
    num_numeric: int, num_levels: tuple[int, ...], device: str
) -> None:
    bins = tuple(torch.linspace(-1, 1, 5) for _ in range(num_numeric))
    shape = InputShape(num_numeric=num_numeric, num_levels=num_levels, num_outputs=3, bins=bins)
    config = parameters(architecture="tabm", hidden=(8, 8), members=2, num_bins=4, embedding_dim=3)
    net = build_net(config, shape).to(device)
    codes = torch.tensor([[level - 1 for level in num_levels], [-1] * len(num_levels)], dtype=torch.int32)
    out = net(torch.zeros(2, num_numeric, device=device), codes.to(device))
    assert out.shape == (2, 2, 3) and out.isfinite().all()
    assert num_numeric == 4 or not torch.equal(out[0], out[1])


@pytest.mark.parametrize("looked_up", [True, False])
def test_numbers_are_embedded_as_published(looked_up: bool) -> None:
    from rtdl_num_embeddings import PiecewiseLinearEmbeddings

    bins = [
        torch.tensor([-1.5, -0.5, -0.25, 0.0, 2.0]), torch.tensor([-1.0, 0.0, 1.0]),
        torch.linspace(-2.0, 2.0, 5), torch.tensor([0.0, 0.25, 0.5, 1.0]),
    ]  # fmt: skip
    torch.manual_seed(0)
    published = PiecewiseLinearEmbeddings(bins, 3, activation=False, version="B")
    drawn = torch.rand(())
    torch.manual_seed(0)
    layer = PiecewiseEmbeddings(bins, 3)
    assert torch.equal(torch.rand(()), drawn)
    layer.is_exported = not looked_up
    for found, expected in zip(layer.parameters(), published.parameters(), strict=True):
        assert torch.equal(found, expected)
    with torch.no_grad():
        layer.rise.copy_(published.linear.weight.normal_())
    edges = torch.tensor([[-9.0], [-1.0], [-0.25], [0.0], [0.5], [1.0], [2.0], [9.0]]).expand(8, 4)
    numbers = torch.cat([edges, torch.randn((200, 4))])
    outward = torch.randn((208, 4, 3))
    results = []
    for module in (layer, published):
        values = module(numbers)
        values.backward(outward)
        results.append([values.detach(), *(parameter.grad for parameter in module.parameters())])
    for found, expected in zip(*results, strict=True):
        if looked_up:
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
        else:
            assert torch.equal(found, expected)


def test_members_weigh_their_inputs_as_published() -> None:
    from tabm import ElementwiseAffine, EnsembleView

    torch.manual_seed(0)
    published = ElementwiseAffine((4, 5), bias=False, scaling_init="normal", scaling_init_chunks=[3, 2])
    torch.manual_seed(0)
    layer = Adapter([3, 2], members=4)
    x = torch.randn(7, 5)
    assert torch.equal(layer.weight, published.weight)
    assert torch.equal(layer(x), published(EnsembleView(k=4)(x)))


def test_cosines_begin_slow_and_fast_and_none_counts_before_training_finds_a_use_for_it() -> None:
    torch.manual_seed(0)
    layer = CosineEmbeddings(50, 16)
    slow, fast = layer.frequency[:, 0].abs(), layer.frequency[:, -1].abs()
    assert 0 < slow.max() <= 0.03 and fast.median() > 1 and fast.max() <= 30
    x = torch.randn(7, 50)
    assert layer(x).shape == (7, 50, 16) and not layer(x).any()
    with torch.no_grad():
        layer.factor.fill_(2.0)
        layer.shift.fill_(0.5)
    torch.testing.assert_close(layer(x)[..., 0], 2 * x + 0.5)
    wave = 2 * torch.cos(2 * torch.pi * layer.frequency[3, 5] * x[:, 3]) + 0.5
    torch.testing.assert_close(layer(x)[:, 3, 6], wave)


def test_cosines_stay_in_float32_where_layers_multiply_in_bfloat16(device: str) -> None:
    torch.manual_seed(0)
    layer = CosineEmbeddings(5, 16).to(device)
    torch.nn.init.ones_(layer.factor)
    x = torch.randn(64, 5, device=device)
    plain = layer(x)
    with torch.autocast(device, torch.bfloat16):
        assert torch.equal(layer(x), plain)


def test_tabm_embeds_numbers_as_cosines_but_no_column_with_two_values() -> None:
    bins = (torch.linspace(-1, 1, 5), torch.tensor([0.0, 1.0]), torch.linspace(-2, 2, 5))
    shape = InputShape(num_numeric=3, num_levels=(4,), num_outputs=1, bins=bins)
    config = parameters(
        architecture="tabm", hidden=(8, 8), members=2, num_bins=4, embedding_dim=3, number_embedding="cosine"
    )
    net = build_net(config, shape)
    assert isinstance(net.input, TabMInput) and isinstance(net.input.numeric, CosineEmbeddings)
    assert net.input.widths == (3, 3, 1, 5)
    numbers = torch.randn(6, 3)
    read = net.input(numbers, torch.zeros((6, 1), dtype=torch.int32))
    assert read.shape == (6, 12) and torch.equal(read[:, 6], numbers[:, 1])


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_each_member_has_the_output_layer_that_is_published(outputs: int, device: str) -> None:
    from tabm import LinearEnsemble

    torch.manual_seed(0)
    published = LinearEnsemble(7, outputs, k=3).to(device)
    torch.manual_seed(0)
    layer = MembersOutput(7, outputs, members=3).to(device)
    for name, parameter in published.named_parameters():
        assert torch.equal(layer.get_parameter(name), parameter)
    outward = torch.randn((11, 3, outputs), device=device)
    found = []
    for module in (published, layer):
        x = torch.linspace(-2.0, 2.0, 231, device=device).view(11, 3, 7).requires_grad_()
        values = module(x)
        values.backward(outward)
        found.append([values, x.grad, *(parameter.grad for parameter in module.parameters())])
        with torch.no_grad():
            torch.testing.assert_close(module(x), values)
    for expected, own in zip(*found, strict=True):
        torch.testing.assert_close(own, expected, atol=1e-5, rtol=1e-5)
