"""From the configuration to a network."""

from __future__ import annotations

from sparkgpu.config import NeuralConfig
from sparkgpu.engines.neural.nets.dropout import number_layers
from sparkgpu.engines.neural.nets.mlp import build_mlp
from sparkgpu.engines.neural.nets.net import TabularNet
from sparkgpu.engines.neural.nets.resnet import build_resnet
from sparkgpu.engines.neural.nets.shape import Shape


def build_net(config: NeuralConfig, shape: Shape) -> TabularNet:
    """The network that the configuration names, on the CPU, with weights from torch's random numbers."""
    assert config.hidden is not None and config.dropout is not None  # filled in by plan.resolve_parameters
    build = {"mlp": build_mlp, "resnet": build_resnet}[config.architecture]
    net = build(shape, hidden=config.hidden, dropout=config.dropout)
    number_layers(net)
    net.recompute = config.activation_checkpointing
    return net
