"""The parameters of the engines that a configuration leaves open: by preset, task, rows and device.

Published defaults where there are any; what sets the time a run takes (sizes, epochs, trees) by the preset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from sparkgpu.config.keys import Architecture, NeuralConfig, Preset, RunConfig, Strategy, TreesConfig
from sparkgpu.table.schema import Task

SectionT = TypeVar("SectionT", TreesConfig, NeuralConfig)

# Tree settings per task: the meta-tuned defaults for XGBoost of Holzmüller et al., "Better by Default"
# (NeurIPS 2024; pytabkit's XGB_TD), with the number of trees and their step set by the preset.
_TREES: dict[Literal["classes", "regression"], dict[str, float]] = {
    "classes": {
        "max_depth": 6, "min_rows": 5e-6, "sample_rate": 0.65, "col_sample_rate": 0.9,
        "col_sample_rate_per_tree": 1.0, "reg_lambda": 0.0, "reg_alpha": 0.0, "max_bins": 256,
    },
    "regression": {
        "max_depth": 9, "min_rows": 2.0, "sample_rate": 0.7, "col_sample_rate": 1.0,
        "col_sample_rate_per_tree": 1.0, "reg_lambda": 0.0, "reg_alpha": 0.0, "max_bins": 256,
    },
}  # fmt: skip
_TREE_PRESETS: dict[Preset, dict[str, float]] = {
    "fast": {"ntrees": 300, "learn_rate": 0.1, "early_stopping_rounds": 40},
    "balanced": {"ntrees": 1000, "learn_rate": 0.06, "early_stopping_rounds": 100},
    "best": {"ntrees": 4000, "learn_rate": 0.03, "early_stopping_rounds": 300},
}
_Defaults = dict[Architecture, dict[str, float | str | tuple[int, ...]]]
# "best" and, on a GPU, "balanced" are of the size that the TabM paper publishes; on a CPU "balanced" is half
# as wide with half the members, a tenth of the work. "fast" is what two CPU cores train in a minute or so:
# for large tables fewer members and no dropout, since there the network is short of capacity and epochs, not
# of rows (docs/performance.md has the figures).
_NEURAL_PRESETS: dict[Preset, _Defaults] = {
    "fast": {
        "tabm": {
            "hidden": (128, 128), "members": 8, "num_bins": 48, "embedding_dim": 8, "patience": 10,
            "dropout": 0.1, "schedule": "cosine",
        },
        "mlp": {"hidden": (256, 256), "epochs": 12, "patience": 3, "dropout": 0.1},
        "realmlp": {"hidden": (256, 256, 256), "epochs": 32, "patience": 32, "dropout": 0.15},
        "resnet": {"hidden": (128, 128), "epochs": 12, "patience": 3, "dropout": 0.1},
    },
    "balanced": {
        "tabm": {
            "hidden": (512, 512), "members": 32, "num_bins": 48, "embedding_dim": 16, "epochs": 200,
            "patience": 16, "dropout": 0.1,
        },
        "mlp": {"hidden": (512, 512, 512), "epochs": 100, "patience": 10, "dropout": 0.1},
        "realmlp": {"hidden": (256, 256, 256), "epochs": 256, "patience": 256, "dropout": 0.15},
        "resnet": {"hidden": (256, 256, 256), "epochs": 100, "patience": 10, "dropout": 0.1},
    },
    "best": {
        "tabm": {
            "hidden": (512, 512), "members": 32, "num_bins": 48, "embedding_dim": 16, "epochs": 400,
            "patience": 32, "dropout": 0.1,
        },
        "mlp": {"hidden": (512, 512, 512), "epochs": 300, "patience": 30, "dropout": 0.15},
        "realmlp": {"hidden": (256, 256, 256), "epochs": 256, "patience": 256, "dropout": 0.15},
        "resnet": {"hidden": (256, 256, 256, 256), "epochs": 300, "patience": 30, "dropout": 0.15},
    },
}  # fmt: skip
_FAST_ON_MANY_ROWS: _Defaults = {
    "tabm": {
        "hidden": (256, 256), "members": 2, "num_bins": 32, "embedding_dim": 4, "epochs": 8, "patience": 5,
        "dropout": 0.0,
    },
}  # fmt: skip
_MANY_ROWS = 100_000
# Steps that TabM of the preset "fast" takes on a smaller table if nothing stops it early: with 30 epochs for
# every table, tables of 14,000 to 40,000 rows were left half trained (docs/performance.md).
_FAST_STEPS = 6_500
_FAST_EPOCHS = (30, 120)
_BALANCED_ON_CPU: _Defaults = {"tabm": {"hidden": (256, 256), "members": 16}}
_LEARNING: _Defaults = {
    "tabm": {"learning_rate": 2e-3, "weight_decay": 3e-4, "schedule": "constant"},
    "realmlp": {"learning_rate": 0.04, "weight_decay": 2e-2, "schedule": "coslog4", "batch_size": 256},
    "mlp": {"learning_rate": 1e-3, "weight_decay": 1e-4, "schedule": "constant"},
    "resnet": {"learning_rate": 1e-3, "weight_decay": 1e-4, "schedule": "constant"},
}
# Batch size by training rows, as the TabM paper sets it (Gorishniy et al., ICLR 2025).
_BATCH_SIZES = ((32_000, 256), (108_000, 512))


def resolve_parameters(
    config: RunConfig,
    *,
    preset: Preset,
    strategy: Strategy,
    task: Task,
    train_rows: int,
    device: str,
    tree_device: str,
) -> RunConfig:
    """The configuration with every open engine parameter filled in. What the user set is never changed."""
    family: Literal["classes", "regression"] = "regression" if task == "regression" else "classes"
    trees = fill(config.trees, {**_TREES[family], **_TREE_PRESETS[preset]})
    if trees.tree_method == "auto":
        on_gpu = tree_device.startswith("cuda")
        trees = trees.model_copy(update={"tree_method": "gpu_hist" if on_gpu else "hist"})
    defaults = neural_defaults(config.neural, preset, device, task=task, train_rows=train_rows)
    neural = fill(config.neural, defaults)
    neural = fill(neural, {"micro_batch_size": neural.batch_size})
    if neural.strategy == "auto":
        neural = neural.model_copy(update={"strategy": strategy})
    data = config.data.model_copy(update={"task": task})
    return config.model_copy(update={"preset": preset, "data": data, "trees": trees, "neural": neural})


def neural_defaults(
    config: NeuralConfig, preset: Preset, device: str, *, task: Task = "binary", train_rows: int = 0
) -> dict[str, Any]:
    """The network's parameters by architecture, preset and rows; few rows until the table is known."""
    architecture = config.architecture
    found: dict[str, Any] = {**_LEARNING[architecture], **_NEURAL_PRESETS[preset][architecture]}
    if preset == "fast" and train_rows >= _MANY_ROWS:
        found |= _FAST_ON_MANY_ROWS.get(architecture, {})
    if preset == "balanced" and not device.startswith("cuda"):
        found |= _BALANCED_ON_CPU.get(architecture, {})
    if architecture == "realmlp" and task == "regression":
        found["learning_rate"] = 0.2
    found.setdefault("batch_size", next((size for rows, size in _BATCH_SIZES if train_rows < rows), 1024))
    if "epochs" not in found:
        steps = max(1, -(-train_rows // (config.batch_size or found["batch_size"])))
        least, most = _FAST_EPOCHS
        found["epochs"] = min(max(round(_FAST_STEPS / steps), least), most)
    return found


def fill(section: SectionT, values: Mapping[str, Any]) -> SectionT:
    """A copy of `section` with `values` in the places that are still open."""
    return section.model_copy(
        update={key: value for key, value in values.items() if getattr(section, key) is None}
    )
