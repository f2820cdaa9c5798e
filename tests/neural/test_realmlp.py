"""RealMLP starts, and is kept, as published."""

from __future__ import annotations

import pytest
import torch
from planted import parameters

from sparkgpu.neural.nets.network import InputShape, build_net
from sparkgpu.neural.nets.realmlp import ScaledOneHot, start_realmlp
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.training.checkpoint import CurvePoint
from sparkgpu.neural.training.objective import Objective

ROWS = 2_000
SHAPE = InputShape(num_numeric=3, num_levels=(2, 5, 40), num_outputs=4)


def bent(x: float) -> float:
    return x / (1 + (x / 3) ** 2) ** 0.5


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    codes = [torch.randint(-1, levels, (ROWS,), generator=random) for levels in SHAPE.num_levels]
    return torch.randn(ROWS, 3, generator=random), torch.stack(codes, dim=1).int()


def test_categories_are_centred_scaled_and_bent_and_a_missing_one_is_zero_before() -> None:
    # Level 0 of the second column has 70 % of the rows: its median is 1, its quartiles .25 and 1.
    codes = torch.tensor([[0, 0]] * 6 + [[1, 0], [0, 1], [1, 2], [-1, -1]], dtype=torch.int32)
    one_hot = ScaledOneHot([2, 3])
    one_hot.fit(codes)
    found = one_hot(codes[[0, 6, 9, 7, 8]])
    # Two levels are 1 and -1, here with median 1 and quartiles .25 and 1; missing is 0.
    assert found[:3, 0].tolist() == pytest.approx([0, bent(-2 / 0.75), bent(-1 / 0.75)], abs=1e-6)
    # Level 0 is the same; levels with 10 % are 0 at all three.
    first = bent(-1 / 0.75)
    assert found[:, 1].tolist() == pytest.approx([0, 0, first, first, first], abs=1e-6)
    assert found[:, 2].tolist() == pytest.approx([0, 0, 0, bent(2), 0], abs=1e-6)
    assert found[:, 3].tolist() == pytest.approx([0, 0, 0, 0, bent(2)], abs=1e-6)


def test_each_layer_starts_with_outputs_that_vary_by_one_and_none_is_zero() -> None:
    torch.manual_seed(0)
    net = build_net(parameters(architecture="realmlp", hidden=(32, 24), dropout=0.1), SHAPE).eval()
    numeric, codes = rows()
    made = ResidentRows(numeric_NG=numeric, codes_NK=codes, target_N=torch.zeros(ROWS), weight_N=None)
    with torch.no_grad():
        start_realmlp(net, made)
        hidden = net.input(numeric, codes)
        for block in net.blocks.values():
            before = block.linear(hidden)
            torch.testing.assert_close(before.std(dim=0, correction=0), torch.ones(before.shape[1]))
            # The bias moves each unit's zero to where rows are.
            assert ((before > 0).any(dim=0) & (before < 0).any(dim=0)).all()
            hidden = block(hidden)
        outputs = net.output(hidden).squeeze(1)
    torch.testing.assert_close(outputs.std(dim=0, correction=0), torch.ones(SHAPE.num_outputs))


def test_the_last_epoch_with_the_fewest_errors_is_kept() -> None:
    def point(epoch: int, valid: float, error: float | None) -> CurvePoint:
        return CurvePoint(epoch=epoch, elapsed_s=0.0, train=0.0, valid=valid, error=error)

    assert point(2, 0.9, 0.1).beats(point(1, 0.5, 0.1))
    assert not point(2, 0.1, 0.2).beats(point(1, 0.5, 0.1))
    assert point(2, 0.4, None).beats(point(1, 0.5, None))
    assert not point(2, 0.5, None).beats(point(1, 0.5, None))


def test_the_error_of_a_row_is_that_of_its_members_mean() -> None:
    outputs = torch.tensor([[[5.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    errors = Objective(task="binary").error_of_mean(outputs, torch.tensor([1, 1]))
    assert errors.tolist() == [1.0, 0.0]
