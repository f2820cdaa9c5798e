"""The configuration of models: ``[trees]``, ``[neural]``, and the further models of ``[[models]]``.

A further model is one engine or one network under a name of its own. It takes every value that its own table
leaves out from ``[trees]`` or ``[neural]``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from sparkgpu.core.config.context_keys import ContextConfig
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.config.registry.networks import NETWORKS
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.config.values import (
    CategoricalEncoding,
    Count,
    Distribution,
    Fraction,
    GrowPolicy,
    NotNegative,
    NumberEmbedding,
    Positive,
    Precision,
    Schedule,
    Section,
    TreeMethod,
)
from sparkgpu.core.words import nearest


def _tree_engine(name: str) -> str:
    return name if name == "auto" else ENGINES.find(name, lambda entry: entry.branch == "trees").name


def _strategy(name: str) -> str:
    return name if name == "auto" else STRATEGIES.find(name).name


def _ours(*names: str) -> WithJsonSchema:
    """For editors: our own names to choose from, and any other name, which a package may add."""
    return WithJsonSchema({"anyOf": [{"enum": list(names)}, {"type": "string"}]})


AUTO_ENGINE = "h2o-xgboost"
_WITHOUT_H2O = ("xgboost", "lightgbm")


def auto_engine() -> str:
    """The engine with which "auto" begins: H2O's or, where that is not installed, the first of the others."""
    installed = [name for name in (AUTO_ENGINE, *_WITHOUT_H2O) if ENGINES.find(name).missing is None]
    return installed[0] if installed else AUTO_ENGINE


TreeEngine = Annotated[
    str,
    AfterValidator(_tree_engine),
    _ours("auto", *(entry.name for entry in ENGINES.own() if entry.branch == "trees")),
]
Architecture = Annotated[
    str,
    AfterValidator(lambda name: NETWORKS.find(name).name),
    _ours(*(entry.name for entry in NETWORKS.own())),
]
Strategy = Annotated[
    str, AfterValidator(_strategy), _ours("auto", *(entry.name for entry in STRATEGIES.own()))
]


class TreesConfig(Section):
    """``[trees]``, with H2O's names. `tree_method="gpu_hist"` means hist on the lane's GPU.

    `max_depth` 0 means no limit, as in the engines' documentation. `engine` "auto" is H2O's XGBoost or, where
    that is not installed, xgboost, else lightgbm; on a GPU where H2O's does not train it is the package
    xgboost, if that is installed with CUDA. With `try_smaller` trees of at most eight leaves grow as well,
    and the validation rows choose between the two sizes. `distribution` is that of a regression's target
    around its mean: its deviance is what trees minimise.
    """

    engine: TreeEngine = "auto"
    ntrees: Count | None = None
    grow_policy: GrowPolicy | None = None
    max_depth: Annotated[int, Field(ge=0)] | None = None
    max_leaves: Annotated[int, Field(ge=0)] | None = None
    categorical_encoding: CategoricalEncoding | None = None
    learn_rate: Positive | None = None
    tree_method: TreeMethod = "auto"
    early_stopping_rounds: Annotated[int, Field(ge=0)] | None = None
    score_tree_interval: Count = 10
    min_rows: NotNegative | None = None
    sample_rate: Fraction | None = None
    col_sample_rate: Fraction | None = None
    col_sample_rate_per_tree: Fraction | None = None
    reg_lambda: NotNegative | None = None
    reg_alpha: NotNegative | None = None
    max_bins: Annotated[int, Field(ge=2)] | None = None
    distribution: Distribution = "gaussian"
    try_smaller: bool | None = None

    @property
    def engine_name(self) -> str:
        """The engine, or the one with which "auto" begins."""
        return auto_engine() if self.engine == "auto" else self.engine


class NetworkConfig(Section):
    """What one network is and how it learns; every key can differ between the networks of a run.

    `hidden` are the widths of the blocks. For tabm, `members` is the number of predictions per row (k in its
    paper); `number_embedding` says how it reads a number, as `embedding_dim` values: on lines within at most
    `num_bins` bins, or as cosines of it (one bin: plainly, in both cases). Its hidden matrices learn by Muon
    at `muon_learning_rate` (0: by AdamW like the rest). `schedule` is how the learning rates change over
    `epochs`; `patience` is the number of epochs without gain before early stopping (0: none). `batch_size` is
    that of a whole step, under every strategy; a device computes `micro_batch_size` rows of it at once (None:
    all). `distribution` is that of a regression's target around its mean: its deviance is the loss.
    `compile` is torch.compile; it is off because on the CPU compiling takes longer than it saves.
    `cuda_graph` lets a GPU repeat a captured step.
    """

    architecture: Architecture = "tabm"
    hidden: tuple[Count, ...] | None = None
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    members: Count | None = None
    num_bins: Annotated[int, Field(ge=1)] | None = None
    number_embedding: NumberEmbedding | None = None
    embedding_dim: Count | None = None
    epochs: Count | None = None
    batch_size: Count | None = None
    micro_batch_size: Count | None = None
    learning_rate: Positive | None = None
    muon_learning_rate: NotNegative | None = None
    schedule: Schedule | None = None
    distribution: Distribution = "gaussian"
    weight_decay: NotNegative | None = None
    patience: Annotated[int, Field(ge=0)] | None = None
    precision: Precision = "auto"
    activation_checkpointing: bool = False
    compile: bool = False
    cuda_graph: bool = True


class NeuralConfig(NetworkConfig):
    """``[neural]``: the network, and how networks use devices and survive faults.

    `data` is the place of the training rows: on the device, or in the table's files. With tp, pp and their
    hybrids, one copy of the network is cut over `model_parallel` devices (None: all, or 2 in a hybrid).
    `checkpoint_minutes` is the time between two checkpoints within an epoch; an epoch ends with a checkpoint
    if the last one is 10 seconds old. A rank without progress for `rank_timeout_s` seconds counts as hung.
    After a lost rank, training starts again from its checkpoint, at most `max_restarts` times.
    """

    data: Literal["auto", "resident", "stream"] = "auto"
    strategy: Strategy = "auto"
    model_parallel: Count | None = None
    checkpoint_minutes: Positive = 10.0
    rank_timeout_s: Annotated[float, Field(ge=5.0)] = 40.0
    max_restarts: Annotated[int, Field(ge=0)] = 2

    @property
    def engine_name(self) -> str:
        return "torch"


ModelSection = TreesConfig | NeuralConfig | ContextConfig

OWN: tuple[str, str] = ("trees", "neural")
"""The models of every run that does not say otherwise; their sections bear their names."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
# Trials, and models whose settings were searched, have names of these forms.
_TAKEN = re.compile(r"best|blend|all|trees|neural|.*-s\d+(-f\d+)?|.*-tuned")


def _model_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a model's name has up to 40 small letters, digits, hyphens and underscores")
    if _TAKEN.fullmatch(name):
        raise ValueError(f"{name!r} already means something else; choose another name")
    return name


ModelName = Annotated[str, AfterValidator(_model_name)]


class TreesModel(TreesConfig):
    """One of ``[[models]]``: trees of `engine`, with the keys of ``[trees]``."""

    name: ModelName
    engine: TreeEngine


class NetworkModel(NetworkConfig):
    """One of ``[[models]]``: a network of `architecture`, with the keys of ``[neural]`` that describe one."""

    name: ModelName
    architecture: Architecture


class ContextModel(ContextConfig):
    """One of ``[[models]]``: the in-context model of `engine`, with the keys of ``[tabicl]``."""

    name: ModelName


def _as_tables(value: Any) -> Any:
    """`models` with a table for each name but our own; tables alone are added to our own models."""
    return tuple(map(_table_of, _after_own(value))) if isinstance(value, tuple) else value


def _after_own(models: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tables alone come after our own models."""
    return models if not models or any(isinstance(entry, str) for entry in models) else (*OWN, *models)


def _table_of(entry: Any) -> Any:
    if entry in OWN:
        return entry
    if isinstance(entry, Mapping):
        return _checked(entry)
    if not isinstance(entry, str):
        raise ValueError(f"{entry!r} is no model; give a name, or a table with a name and an engine")
    engines = (found.name for found in ENGINES.all() if found.branch == "trees" or found.in_context)
    tables = {name: {"name": name, "engine": name} for name in engines}
    tables |= {name: {"name": name, "architecture": name} for name in NETWORKS.names()}
    if entry not in tables:
        names = [*OWN, *tables]
        raise ValueError(f"{entry!r} is no model.{nearest(entry, names)} Choose from {', '.join(names)}")
    return tables[entry]


def _checked(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """A table of ``[[models]]``, which has to be one of trees or of a network."""
    name, both = table.get("name", ""), {"engine", "architecture"} & table.keys()
    if len(both) != 1:
        found = "has both" if both else "has neither"
        raise ValueError(f"model {name!r} needs an engine or an architecture (a network); it {found}")
    (kind,) = both
    if name in (*ENGINES.names(), *NETWORKS.names()) and name != table[kind]:
        raise ValueError(
            f"model {name!r} has {kind} {table[kind]!r}; that name would mislead, choose another"
        )
    return table


def _kind(entry: Any) -> str:
    if isinstance(entry, str):
        return "own"
    keys = entry if isinstance(entry, Mapping) else vars(entry)
    if "architecture" in keys:
        return "network"
    engine = keys.get("engine")
    return "context" if engine in ENGINES.names() and ENGINES.find(engine).in_context else "trees"


def _different(models: tuple[Any, ...]) -> tuple[Any, ...]:
    names = [model_name(model) for model in models]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} is there twice; each model needs a name of its own")
    return models


Model = Annotated[
    Annotated[Literal["trees", "neural"], Tag("own")]
    | Annotated[TreesModel, Tag("trees")]
    | Annotated[NetworkModel, Tag("network")]
    | Annotated[ContextModel, Tag("context")],
    Discriminator(_kind),
]
Models = Annotated[
    tuple[Model, ...], BeforeValidator(_as_tables), Field(min_length=1), AfterValidator(_different)
]


def model_name(model: str | TreesModel | NetworkModel | ContextModel) -> str:
    return model if isinstance(model, str) else model.name


def with_models(models: Any, also: Any) -> tuple[Any, ...]:
    """The entries of `models` as a configuration gives them (None: our own), and those of `also`.

    `also` is a name, several with commas between them, a table, or a list of these.
    """
    more: list[Any] = []
    for entry in also if isinstance(also, list | tuple) else (also,):
        more += map(str.strip, entry.split(",")) if isinstance(entry, str) else [entry]
    return (*_after_own(OWN if models is None else tuple(models)), *more)
