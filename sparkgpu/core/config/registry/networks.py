"""The networks, with one entry each, which holds the defaults of each preset.

Defaults are the published ones if they exist; the preset sets what determines a run's time (sizes, epochs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sparkgpu.core.config.registry.entries import Choice, Entry, Range, Registry, SearchSpace

Value = float | str | tuple[int, ...]
Defaults = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class NetworkEntry(Entry):
    """A network; `load` names its `sparkgpu.neural.nets.network.Network`.

    `learning` holds the defaults for all presets, `presets` those of each preset; the keys are those of
    ``[neural]``. `on_many_rows` and `fast_on_many_rows` (from 100,000 training rows on), `fast_on_few_rows`
    (below 10,000), `balanced_on_cpu`, `fast_on_many_columns` (from 200 features on),
    `fast_on_small_regression` and `thorough_on_small_regression` (balanced and best; both below 32,000
    training rows), `on_regression` and `on_multiclass` (more than two classes) then override them in their
    cases, in this order. A preset without `epochs` gets enough epochs for about 6,500 steps, or 2,500 where
    `fast_on_small_regression` says something.

    `tensor_parallel` tells how tp cuts it: ``pairs`` of layers, the first of which is cut by its outputs;
    ``inner``, by the inner width of each block; None, not at all. If it is `whole`, a device must hold all of
    it, so nothing cuts it. With `bfloat16_on_amx` it trains in
    bfloat16 on a CPU with AMX where nobody asks for a format, because that measured faster and no worse.
    `search` holds the settings that ``--search`` tries. Of several targets a `joint` network has a head for
    each; of others one is trained for each target.
    """

    presets: Mapping[str, Defaults]
    learning: Defaults = field(default_factory=dict)
    on_many_rows: Defaults = field(default_factory=dict)
    fast_on_many_rows: Defaults = field(default_factory=dict)
    fast_on_few_rows: Defaults = field(default_factory=dict)
    fast_on_many_columns: Defaults = field(default_factory=dict)
    balanced_on_cpu: Defaults = field(default_factory=dict)
    fast_on_small_regression: Defaults = field(default_factory=dict)
    thorough_on_small_regression: Defaults = field(default_factory=dict)
    on_regression: Defaults = field(default_factory=dict)
    on_multiclass: Defaults = field(default_factory=dict)
    tensor_parallel: Literal["pairs", "inner"] | None = None
    whole: bool = False
    bfloat16_on_amx: bool = False
    joint: bool = False
    search: SearchSpace = field(default_factory=dict)


_WIDTHS = Choice(((64, 64), (128, 128), (256, 256), (128, 128, 128), (256, 256, 256)))

# For "tabm", the presets "best" and, on a GPU, "balanced" have the size from its paper. On a CPU "balanced"
# is half as wide with half the members, which is a tenth of the work. Two CPU cores train "fast" in half a
# minute. For large tables it has fewer members and no dropout, since the network then lacks capacity and
# epochs, not rows. Muon learns faster there, and with many classes; on other small tables it overfits sooner.
# Only where few rows have a number to predict and there is time, cosines and Muon together do better
# (benchmarks/results/2026-11-networks.md has the figures).
_TABM = NetworkEntry(
    name="tabm",
    load="sparkgpu.neural.nets.tabm:NETWORK",
    learning={
        "learning_rate": 2e-3, "muon_learning_rate": 0.0, "weight_decay": 3e-4, "schedule": "constant",
        "dropout": 0.1, "number_embedding": "piecewise",
    },
    presets={
        "fast": {
            "hidden": (128, 128), "members": 4, "num_bins": 48, "embedding_dim": 8, "patience": 10,
            "schedule": "cosine",
        },
        "balanced": {
            "hidden": (512, 512), "members": 32, "num_bins": 48, "embedding_dim": 16, "epochs": 200,
            "patience": 16,
        },
        "best": {
            "hidden": (512, 512), "members": 32, "num_bins": 48, "embedding_dim": 16, "epochs": 400,
            "patience": 32,
        },
    },
    fast_on_many_rows={
        "hidden": (256, 256), "members": 2, "num_bins": 32, "embedding_dim": 4, "epochs": 6, "patience": 5,
        "dropout": 0.0,
    },
    # Where noise decides and an epoch is short, more members are worth their time.
    fast_on_few_rows={"members": 8},
    on_many_rows={"muon_learning_rate": 0.02},
    # One bin: plain numbers. Embeddings would make the first layer many times as wide.
    fast_on_many_columns={"num_bins": 1, "members": 4},
    balanced_on_cpu={"hidden": (256, 256), "members": 16},
    # With Muon, fewer than a third of the steps do as well, if early stopping does not end them.
    fast_on_small_regression={"members": 4, "muon_learning_rate": 0.01, "patience": 40},
    thorough_on_small_regression={"number_embedding": "cosine", "muon_learning_rate": 0.01},
    on_multiclass={"muon_learning_rate": 0.02},
    tensor_parallel="pairs",
    bfloat16_on_amx=True,
    joint=True,
    search={
        "learning_rate": Range(low=5e-4, high=5e-3, log=True),
        "weight_decay": Range(low=1e-5, high=1e-2, log=True),
        "dropout": Range(low=0.0, high=0.4),
        "hidden": _WIDTHS,
        "num_bins": Range(low=16, high=96, whole=True),
        "embedding_dim": Choice((4, 8, 16)),
    },
)  # fmt: skip
_REALMLP = NetworkEntry(
    name="realmlp",
    load="sparkgpu.neural.nets.realmlp:NETWORK",
    learning={
        "learning_rate": 0.04, "weight_decay": 2e-2, "schedule": "coslog4", "batch_size": 256,
        "hidden": (256, 256, 256), "dropout": 0.15,
    },
    presets={
        "fast": {"epochs": 32, "patience": 32},
        "balanced": {"epochs": 256, "patience": 256},
        "best": {"epochs": 256, "patience": 256},
    },
    on_regression={"learning_rate": 0.2},
    search={
        "learning_rate": Range(low=0.01, high=0.3, log=True),
        "weight_decay": Range(low=1e-3, high=1e-1, log=True),
        "dropout": Range(low=0.0, high=0.4),
        "hidden": _WIDTHS,
    },
)  # fmt: skip

_SEARCH_PLAIN: SearchSpace = {
    "learning_rate": Range(low=2e-4, high=5e-3, log=True),
    "weight_decay": Range(low=1e-6, high=1e-2, log=True),
    "dropout": Range(low=0.0, high=0.5),
    "hidden": _WIDTHS,
}
_PLAIN: Defaults = {"learning_rate": 1e-3, "weight_decay": 1e-4, "schedule": "constant"}
_MLP = NetworkEntry(
    name="mlp",
    load="sparkgpu.neural.nets.mlp:NETWORK",
    learning=_PLAIN,
    presets={
        "fast": {"hidden": (256, 256), "epochs": 12, "patience": 3, "dropout": 0.1},
        "balanced": {"hidden": (512, 512, 512), "epochs": 100, "patience": 10, "dropout": 0.1},
        "best": {"hidden": (512, 512, 512), "epochs": 300, "patience": 30, "dropout": 0.15},
    },
    tensor_parallel="pairs",
    joint=True,
    search=_SEARCH_PLAIN,
)
_RESNET = NetworkEntry(
    name="resnet",
    load="sparkgpu.neural.nets.resnet:NETWORK",
    learning=_PLAIN,
    presets={
        "fast": {"hidden": (128, 128), "epochs": 12, "patience": 3, "dropout": 0.1},
        "balanced": {"hidden": (256, 256, 256), "epochs": 100, "patience": 10, "dropout": 0.1},
        "best": {"hidden": (256, 256, 256, 256), "epochs": 300, "patience": 30, "dropout": 0.15},
    },
    tensor_parallel="inner",
    joint=True,
    search=_SEARCH_PLAIN,
)
# By the defaults of its authors' toolbox, and float32, since distances lose what bfloat16 rounds.
_MODERNNCA = NetworkEntry(
    name="modernnca",
    load="sparkgpu.neural.nets.modernnca:NETWORK",
    learning={
        "learning_rate": 1e-2, "weight_decay": 2e-4, "schedule": "constant", "batch_size": 1024,
        "hidden": (128,), "embedding_dim": 34, "dropout": 0.0, "precision": "float32",
    },
    presets={
        "fast": {"epochs": 30, "patience": 8},
        "balanced": {"epochs": 200, "patience": 20},
        "best": {"epochs": 200, "patience": 20},
    },
    fast_on_many_rows={"epochs": 6, "patience": 3},
    whole=True,
    search={
        "learning_rate": Range(low=1e-3, high=3e-2, log=True),
        "weight_decay": Range(low=1e-6, high=1e-3, log=True),
        "hidden": Choice(((64,), (128,), (256,), (128, 512), (256, 512))),
        "embedding_dim": Range(low=16, high=64, whole=True),
    },
)  # fmt: skip

NETWORKS: Registry[NetworkEntry] = Registry(
    "sparkgpu.networks", NetworkEntry, (_TABM, _REALMLP, _MLP, _RESNET, _MODERNNCA)
)
