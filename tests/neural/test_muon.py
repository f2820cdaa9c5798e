"""Muon: the nearest orthogonal matrix, and which parameters get it."""

from __future__ import annotations

import pytest
import torch
from planted import parameters

from sparkgpu.neural.nets.network import InputShape, build_net, find_network
from sparkgpu.neural.training.optimizer import (
    in_batches,
    make_optimizer,
    orthogonal,
    set_progress,
    step_matrices,
)

SHAPE = InputShape(num_numeric=2, num_levels=(3,), num_outputs=2, bins=(torch.linspace(-1.0, 1.0, 5),) * 2)


@pytest.mark.parametrize("shape", [(24, 24), (40, 8), (8, 40)])
def test_an_update_becomes_nearly_orthogonal_and_keeps_its_directions(
    shape: tuple[int, int], device: str
) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    left, scale, right = torch.linalg.svd(matrix, full_matrices=False)
    found = left.t() @ orthogonal([matrix])[0] @ right.t()
    kept = scale > 0.003 * matrix.norm()  # the steps do not lift smaller ones
    assert ((found.diagonal()[kept] > 0.79) & (found.diagonal()[kept] < 1.21)).all()
    assert (found - found.diagonal().diag()).abs().max() < 1e-4
    nothing = torch.zeros(shape, device=device)
    assert torch.equal(orthogonal([nothing])[0], nothing)


def test_matrices_of_any_shapes_are_made_orthogonal_together_as_each_alone(device: str) -> None:
    random = torch.Generator().manual_seed(0)
    shapes = [(24, 24), (40, 8), (8, 40), (1, 64), (24, 24)]
    matrices = [torch.randn(shape, generator=random).to(device) for shape in shapes]
    for matrix, found in zip(matrices, orthogonal(matrices), strict=True):
        torch.testing.assert_close(found, orthogonal([matrix])[0], atol=1e-4, rtol=0)


def test_a_gpu_steps_small_matrices_together_and_a_cpu_each_alone() -> None:
    with torch.device("meta"):
        matrices = [torch.zeros(shape) for shape in ((512, 438), (2048, 1024), (512, 512))]
    assert [len(batch) for batch in in_batches(matrices)] == [2, 1]
    assert [len(batch) for batch in in_batches([torch.zeros(4, 4)] * 2)] == [1, 1]


def test_only_the_hidden_matrices_of_tabm_get_muon() -> None:
    config = parameters(
        architecture="tabm", hidden=(8, 8), members=2, num_bins=4, embedding_dim=2, muon_learning_rate=0.02
    )
    net = build_net(config, SHAPE)
    optimizer = make_optimizer(net, config, find_network(config).recipe)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    with_muon = {names[id(p)] for group in optimizer.param_groups if group["muon"] for p in group["params"]}
    assert with_muon == {"blocks.0.linear.weight", "blocks.1.linear.weight"}
    set_progress(optimizer, config, find_network(config).recipe, 0.0)
    assert {group["lr"] for group in optimizer.param_groups if group["muon"]} == {0.02}
    assert {group["lr"] for group in optimizer.param_groups if not group["muon"]} == {config.learning_rate}
    plain = make_optimizer(net, parameters(architecture="mlp"), find_network(config).recipe)
    assert not any(group["muon"] for group in plain.param_groups)


def test_a_step_moves_each_parameter_once_and_an_overflow_moves_no_matrix() -> None:
    config = parameters(
        architecture="tabm", hidden=(8,), members=2, num_bins=4, embedding_dim=2, muon_learning_rate=0.02
    )
    torch.manual_seed(0)
    net = build_net(config, SHAPE)
    optimizer = make_optimizer(net, config, find_network(config).recipe)
    for parameter in net.parameters():
        parameter.grad = torch.randn_like(parameter)
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    optimizer.step()
    assert all(not torch.equal(before[name], parameter) for name, parameter in net.named_parameters())
    matrix = net.blocks["0"].linear.weight
    change = (matrix.detach() - before["blocks.0.linear.weight"]) / 0.02
    most = 1.3 * max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
    assert 0.5 < torch.linalg.matrix_norm(change, 2) < most
    kept = matrix.detach().clone()
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert torch.equal(matrix, kept)


def test_an_overflow_of_float16_is_not_read_from_the_device() -> None:
    with torch.device("meta"):
        matrix, state = torch.nn.Parameter(torch.zeros(8, 4)), {"momentum": torch.zeros(8, 4)}
        matrix.grad = torch.zeros(8, 4)
        overflowed = torch.zeros(())
    with torch.no_grad():
        step_matrices([matrix], [state], learning_rate=0.1, weight_decay=0.1, overflowed=overflowed)
