"""From the configuration to a network."""

from __future__ import annotations

from sparkgpu.config.keys import NeuralConfig
from sparkgpu.engines.neural.nets.dropout import number_layers
from sparkgpu.engines.neural.nets.mlp import build_mlp
from sparkgpu.engines.neural.nets.net import TabularNet
from sparkgpu.engines.neural.nets.realmlp import build_realmlp
from sparkgpu.engines.neural.nets.resnet import build_resnet
from sparkgpu.engines.neural.nets.shape import Shape
from sparkgpu.engines.neural.nets.tabm import build_tabm


def build_net(config: NeuralConfig, shape: Shape) -> TabularNet:
    """Build the network that the configuration names, on the CPU, with torch's random initial weights."""
    assert (
        config.hidden is not None and config.dropout is not None
    )  # filled in by plan.defaults.resolve_parameters
    if config.architecture == "tabm":
        assert config.members is not None and config.embedding_dim is not None
        net = build_tabm(
            shape,
            hidden=config.hidden,
            dropout=config.dropout,
            members=config.members,
            embedding_dim=config.embedding_dim,
        )
    elif config.architecture == "realmlp":
        net = build_realmlp(shape, hidden=config.hidden, dropout=config.dropout)
    elif config.architecture == "resnet":
        net = build_resnet(shape, hidden=config.hidden, dropout=config.dropout)
    else:
        net = build_mlp(shape, hidden=config.hidden, dropout=config.dropout)
    number_layers(net)
    net.recompute = config.activation_checkpointing
    return net
