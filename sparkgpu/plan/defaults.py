"""Fills the engine parameters that a configuration leaves open, by preset, task, rows and device.

Defaults are the published ones if they exist; the preset sets what determines a run's time (sizes, epochs,
trees).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from sparkgpu.config.keys import NeuralConfig, Preset, RunConfig, TreesConfig
from sparkgpu.config.parameters import NeuralParameters, TreesParameters
from sparkgpu.config.registry.engines import ENGINES
from sparkgpu.config.registry.networks import NETWORKS, Value
from sparkgpu.plan.tree_defaults import TableSize, tree_defaults

SectionT = TypeVar("SectionT", TreesConfig, NeuralConfig)

_MANY_ROWS = 100_000
# Steps of TabM with preset "fast" on a smaller table without early stopping: 30 epochs are too few for tables
# of 14,000 to 40,000 rows (docs/performance.md).
_FAST_STEPS = 6_500
_MUON_SHARE = 0.75  # a step of Muon takes longer, and brings more
_FAST_EPOCHS = (30, 120)
# A table of so many columns is wide: its first layer takes most of the time, so its width decides the epochs.
# Two cores compute this many operations in about a minute.
_WIDE = 200
_FAST_FLOP = 2.5e12
# Batch size by training rows, as in the TabM paper (Gorishniy et al., ICLR 2025).
_BATCH_SIZES = ((32_000, 256), (108_000, 512))
_MOST_BATCH = 1024
_UNKNOWN = TableSize(task="binary", train_rows=0, num_features=1, num_classes=2)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A configuration in which every key has a value: for ``run.toml``, and for the engines."""

    config: RunConfig
    trees: TreesParameters
    neural: NeuralParameters


def resolve(
    config: RunConfig,
    *,
    preset: Preset,
    strategy: str,
    size: TableSize,
    device: str,
    tree_device: str,
) -> Resolved:
    """Fill in every open parameter of the engines. It never changes the user's values."""
    trees = fill(config.trees, tree_defaults(config.trees, preset, size, tree_device))
    if trees.tree_method == "auto":
        on_gpu = tree_device.startswith("cuda") and ENGINES.find(trees.engine_name).on_gpu
        trees = trees.model_copy(update={"tree_method": "gpu_hist" if on_gpu else "hist"})
    defaults = neural_defaults(config.neural, preset, device, size)
    trees = trees.model_copy(update={"engine": trees.engine_name})
    neural = fill(config.neural, defaults)
    if neural.micro_batch_size is None:
        neural = neural.model_copy(update={"micro_batch_size": neural.batch_size})
    if neural.strategy == "auto":
        neural = neural.model_copy(update={"strategy": strategy})
    data = config.data.model_copy(update={"task": size.task})
    update = {"preset": preset, "data": data, "trees": trees, "neural": neural}
    return Resolved(
        config=config.model_copy(update=update),
        trees=TreesParameters.model_validate(trees.model_dump(exclude_none=True)),
        neural=NeuralParameters.model_validate(neural.model_dump(exclude_none=True)),
    )


def neural_defaults(
    config: NeuralConfig, preset: Preset, device: str, size: TableSize = _UNKNOWN
) -> dict[str, Value]:
    """The network's parameters by architecture, preset and table (until it is known, for a small one)."""
    network = NETWORKS.find(config.architecture)
    task, train_rows = size.task, size.train_rows
    found: dict[str, Value] = {**network.learning, **network.presets[preset]}
    if train_rows >= _MANY_ROWS:
        found |= network.on_many_rows
        if preset == "fast":
            found |= network.fast_on_many_rows
    if preset == "balanced" and not device.startswith("cuda"):
        found |= network.balanced_on_cpu
    is_wide = preset == "fast" and size.num_features >= _WIDE
    if is_wide:
        found |= network.fast_on_many_columns
    if task == "regression":
        found |= network.on_regression
    if task == "multiclass":
        found |= network.on_multiclass
    found.setdefault(
        "batch_size", next((size for rows, size in _BATCH_SIZES if train_rows < rows), _MOST_BATCH)
    )
    if "epochs" not in found:
        filled = fill(config, found)
        assert filled.batch_size is not None
        steps = max(1, -(-train_rows // filled.batch_size))
        least, most = _FAST_EPOCHS
        share = _MUON_SHARE if filled.muon_learning_rate else 1.0
        found["epochs"] = round(share * min(max(round(_FAST_STEPS / steps), least), most))
    if is_wide:
        epoch_flop = max(1, train_rows) * _row_flop(fill(config, found), size.num_features)
        epochs = found["epochs"]
        assert isinstance(epochs, int)
        found["epochs"] = max(1, min(epochs, int(_FAST_FLOP / epoch_flop)))
    return found


def _row_flop(config: NeuralConfig, num_features: int) -> float:
    """Floating-point operations to train on one row: forward, and twice as many backward."""
    hidden, members = config.hidden or (1,), config.members or 1
    each = config.embedding_dim or 1 if (config.num_bins or 1) > 1 else 1
    return 6.0 * members * sum(a * b for a, b in pairwise((num_features * each, *hidden)))


def fill(section: SectionT, values: Mapping[str, Value]) -> SectionT:
    """A copy of `section` with `values` for the keys that are still open."""
    return section.model_copy(
        update={key: value for key, value in values.items() if getattr(section, key) is None}
    )
