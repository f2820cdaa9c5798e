"""Default parameters of trees, by preset, table and device: how large a tree, how many, and how large a step.

The choices were made on validation rows (benchmarks/results/2026-11-trees.md). The most trees are those that
one core grows in the preset's seconds, by a model of the cost of a round that was fitted to measurements. So
the same run gives the same trees on every machine. Early stopping usually ends before; where the limit is
near, fewer and larger steps make the most of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparkgpu.core.config.model_keys import TreesConfig
from sparkgpu.core.config.parameters import TreesParameters
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.config.registry.networks import Value
from sparkgpu.core.config.values import Preset
from sparkgpu.core.table.schema import TableSchema, Task

_MAX_BINS = 256
_COMMON: dict[str, Value] = {
    "sample_rate": 0.8, "col_sample_rate": 1.0, "reg_lambda": 1.0, "reg_alpha": 0.0,
    "categorical_encoding": "sort_by_response",
}  # fmt: skip
# Leaves by training rows: more rows carry finer trees.
_LEAVES = ((10_000, 31), (100_000, 63), (300_000, 127))
_MOST_LEAVES = 255
# With few rows, noise decides how fine trees may be, and nothing tells before how much of it there is.
FEW_ROWS = 10_000
# With fewer than 100,000 rows, longer chains of splits follow noise.
_LEAFWISE_DEPTH = 8
# With one tree per class, rounds are dear, and finer trees need fewer of them.
_TIMES_WITH_CLASSES = 2
_ROWS_PER_LEAF = 16
# So many classes leave few rounds, and each class few rows: steps of 0.3 and leaves of few rows overfit.
_MANY_CLASSES = 50
_LARGEST_STEP_OF_MANY = 0.15
# On a wide table most columns are noise, and the histograms of many columns leave the cache.
_WIDE = 500
_WIDE_LEAVES = 8
_WIDE_BINS = 64
_WIDE_SHARE = 0.3
# The same for trees that grow level by level.
_DEPTHS = ((100_000, 6), (300_000, 8))
_MOST_DEPTH = 9
_LARGEST_STEP = 0.3
_MANY_ROWS = 100_000
_MOST_TIMES = 3.0
_FEWEST_TREES = 30
_LEAST_PATIENCE = 20
# A GPU grows a tree in a small part of the time of a core.
_GPU_TIMES = 20.0


@dataclass(frozen=True, kw_only=True)
class TableSize:
    """The facts of a prepared table on which default parameters depend; `num_classes` is 0 for regression."""

    task: Task
    train_rows: int
    num_features: int
    num_classes: int

    @classmethod
    def of(cls, schema: TableSchema) -> TableSize:
        return cls(
            task=schema.task,
            train_rows=schema.splits["train"],
            num_features=len(schema.features),
            num_classes=len(schema.classes),
        )

    @property
    def trees_per_round(self) -> int:
        """XGBoost and LightGBM grow one tree per class if there are more than two."""
        return self.num_classes if self.task == "multiclass" else 1


@dataclass(frozen=True, kw_only=True)
class _Limits:
    """A preset: its rounds cost at most `core_s` seconds of one core.

    From 100,000 training rows on it is `row_s` seconds a row, at most three times `core_s`. The preset "fast"
    gives the network fewer epochs there.
    """

    core_s: float
    row_s: float
    most_rounds: int
    learn_rate: float
    early_stopping_rounds: int


_PRESETS: dict[Preset, _Limits] = {
    "fast": _Limits(core_s=50, row_s=2e-4, most_rounds=2500, learn_rate=0.03, early_stopping_rounds=80),
    "balanced": _Limits(core_s=300, row_s=3e-3, most_rounds=4500, learn_rate=0.02, early_stopping_rounds=120),
    "best": _Limits(core_s=1500, row_s=1.5e-2, most_rounds=6000, learn_rate=0.015, early_stopping_rounds=200),
}


def tree_defaults(
    config: TreesConfig, preset: Preset, size: TableSize, device: str, most_s: float | None = None
) -> dict[str, Value]:
    """Values for all open keys of ``[trees]``, in view of those set in `config`.

    If time is limited to `most_s`, there are as many trees as one core grows in so many seconds.
    """
    limits = _PRESETS[preset]
    on_gpu = device.startswith("cuda") and config.tree_method in ("auto", "gpu_hist")
    growth = _growth(config, size, on_gpu=on_gpu)
    entry = ENGINES.find(config.engine_name)
    own = {**growth, **entry.defaults}
    leaves = config.max_leaves or int(own["max_leaves"] or 2 ** (config.max_depth or int(own["max_depth"])))
    many_classes = size.num_classes >= _MANY_CLASSES
    if size.trees_per_round > 1:  # trees of classes with few rows stay small
        leaves = min(leaves, max(_WIDE_LEAVES, size.train_rows // size.num_classes // _ROWS_PER_LEAF))
    seconds = limits.core_s
    if size.train_rows >= _MANY_ROWS:
        seconds = min(limits.row_s * size.train_rows, _MOST_TIMES * seconds)
    if most_s is not None:
        seconds = min(most_s, _MOST_TIMES * _PRESETS["best"].core_s)
    seconds *= _GPU_TIMES if on_gpu else 1.0
    is_wide = size.num_features >= _WIDE
    bins = config.max_bins or (_WIDE_BINS if is_wide else _MAX_BINS)
    affordable = int(seconds / (entry.round_cost * (round_s(size, leaves, bins) + _applied_s(size, leaves))))
    rounds = min(max(affordable, _FEWEST_TREES), limits.most_rounds)
    step = limits.learn_rate * limits.most_rounds / (config.ntrees or rounds)
    largest = _LARGEST_STEP_OF_MANY if many_classes else _LARGEST_STEP
    learn_rate = round(min(max(step, limits.learn_rate), largest), 3)
    # Larger steps show earlier that nothing is gained any more.
    patience = limits.early_stopping_rounds * min(1.0, limits.learn_rate / (config.learn_rate or learn_rate))
    return {
        **_COMMON,
        **growth,
        "engine": entry.name,
        "tree_method": "gpu_hist" if on_gpu and entry.on_gpu else "hist",
        "max_bins": bins,
        "col_sample_rate_per_tree": _WIDE_SHARE if is_wide else 0.8,
        # With some classes a row adds little to the sum of second derivatives that `min_rows` limits. With
        # many, the few rows of a class must not have leaves of their own.
        "min_rows": 0.1 if size.trees_per_round > 1 and not many_classes else 1.0,
        "ntrees": rounds,
        "learn_rate": learn_rate,
        "early_stopping_rounds": max(_LEAST_PATIENCE, round(patience)),
        "try_smaller": _tries_smaller(config, size, str(own["grow_policy"]), is_wide=is_wide),
        **entry.defaults,
    }


def _tries_smaller(config: TreesConfig, size: TableSize, grow_policy: str, *, is_wide: bool) -> bool:
    """Whether small trees are tried as well: where rows are few and the user left the trees' size open."""
    is_open = config.max_leaves is None and config.max_depth is None and config.ntrees is None
    grows = config.grow_policy or grow_policy
    return size.train_rows < FEW_ROWS and is_open and not is_wide and grows != "symmetric"


def round_s(size: TableSize, leaves: int, bins: int) -> float:
    """About the seconds of one server core for a round (fitted to H2O's XGBoost and its histograms).

    With more than two classes each tree is simpler and smaller, since it has to know only one class.
    """
    histogram_mib = size.num_features * bins * 16 / 2**20
    levels = math.log2(max(leaves, 2))
    filling = size.train_rows * size.num_features / 230e6 * (1 + 0.4 * histogram_mib) * min(1.0, levels / 6)
    splitting = leaves * size.num_features * bins / 200e6
    growing = 2e-3 + 8e-5 * leaves
    if size.trees_per_round == 1:
        return growing + filling + splitting
    return size.trees_per_round * (0.2 * growing + 0.8 * (filling + splitting))


def each_round_s(trees: TreesParameters, size: TableSize) -> float:
    leaves = trees.max_leaves or 2 ** (trees.max_depth or 6)
    return round_s(size, leaves, trees.max_bins)


def _applied_s(size: TableSize, leaves: int) -> float:
    """The seconds that a round takes again in the predictions after the last one: little but with classes."""
    if size.trees_per_round == 1:
        return 0.0
    return size.trees_per_round * 1.2e-8 * math.log2(max(leaves, 2)) * size.train_rows


def _growth(config: TreesConfig, size: TableSize, *, on_gpu: bool) -> dict[str, float | str]:
    """How trees grow, and how far: leaf by leaf where the engine can, else level by level."""
    leafwise = not on_gpu or ENGINES.find(config.engine_name).leafwise_on_gpu
    if config.tree_method in ("exact", "approx") or config.max_depth:
        leafwise = False  # only histograms grow leaf by leaf, and a depth is a limit of levels
    if config.grow_policy is not None:
        leafwise = config.grow_policy == "lossguide"
    if leafwise:
        leaves = next((leaves for rows, leaves in _LEAVES if size.train_rows < rows), _MOST_LEAVES)
        if size.num_features >= _WIDE:
            leaves = _WIDE_LEAVES
        if size.trees_per_round > 1 and size.train_rows >= _MANY_ROWS:
            leaves *= _TIMES_WITH_CLASSES
        depth = _LEAFWISE_DEPTH if size.train_rows < _MANY_ROWS else 0
        return {"grow_policy": "lossguide", "max_depth": depth, "max_leaves": leaves}
    depth = next((depth for rows, depth in _DEPTHS if size.train_rows < rows), _MOST_DEPTH)
    if size.num_features >= _WIDE:
        depth = int(math.log2(_WIDE_LEAVES))
    return {"grow_policy": "depthwise", "max_depth": depth, "max_leaves": 0}
