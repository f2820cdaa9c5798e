"""Fills the engine parameters that a configuration leaves open, by preset, task, rows and device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from sparkgpu.core.config.context_keys import ContextConfig, ContextParameters
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.model_keys import (
    OWN,
    ContextModel,
    ModelSection,
    NetworkModel,
    NeuralConfig,
    TreesConfig,
    TreesModel,
)
from sparkgpu.core.config.parameters import NeuralParameters, Parameters, TreesParameters
from sparkgpu.core.config.registry.engines import ENGINES, Branch
from sparkgpu.core.config.registry.networks import NETWORKS, Value
from sparkgpu.core.config.values import Preset
from sparkgpu.core.plan.tree_defaults import FEW_ROWS, TableSize, tree_defaults
from sparkgpu.core.plan.trials import TrialSpec, base_model, free_keys

SectionT = TypeVar("SectionT", TreesConfig, NeuralConfig, ContextConfig)

_MANY_ROWS = 100_000
_SMALL_REGRESSION = 32_000  # training rows; on diamonds cosines and Muon win with 7,000 and lose with 38,000
# Steps of TabM with preset "fast" on a smaller table without early stopping: 30 epochs are too few for tables
# of 14,000 to 40,000 rows (benchmarks/results/2026-11-networks.md).
_FAST_STEPS = 6_500
_FAST_STEPS_OF_SMALL_REGRESSION = 2_500
_MUON_SHARE = 0.75  # a step of Muon takes longer, and brings more
_FAST_EPOCHS = (30, 120)
# A table of so many columns is wide.
_WIDE = 200
# With "fast" a network that is not made for many rows gets at most so many operations: two cores compute them
# in about 50 seconds. Of a table with many columns the first layer takes most of them.
_FAST_FLOP = 2e12
# A large table's few epochs are made for about so many seconds. A time limit may give it more, not endlessly:
# the learning rate falls with the time, and what is left goes to further seeds.
_FAST_S = 80.0
_MOST_TIMES = 4.0
# Batch size by training rows, as in the TabM paper (Gorishniy et al., ICLR 2025).
# A network that has no time for its epochs does worse than a smaller one. One server core computes so many
# operations a second, and most networks stop after about three times their patience.
_SMALLER: dict[Preset, Preset] = {"best": "balanced", "balanced": "fast"}
_FLOP_PER_S = 4e10
_EPOCHS_PER_PATIENCE = 3
_BATCH_SIZES = ((32_000, 256), (108_000, 512))
_MOST_BATCH = 1024
# A CPU core reads about 500 rows of ten columns in a second, for each view (TabICL's 28 million weights).
_MOST_CONTEXT_ON_CPU = 10_000
_KINDS: tuple[tuple[type[ModelSection], type[Parameters]], ...] = (
    (TreesConfig, TreesParameters),
    (NeuralConfig, NeuralParameters),
    (ContextConfig, ContextParameters),
)
_UNKNOWN = TableSize(task="binary", train_rows=0, num_features=1, num_classes=2)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A configuration in which every key has a value: for ``run.toml``, and by model for the engines.

    `parameters` holds the run's models, and trees and neural in any case.
    """

    config: RunConfig
    parameters: Mapping[str, Parameters]

    @property
    def trees(self) -> TreesParameters:
        found = self.parameters["trees"]
        assert isinstance(found, TreesParameters)
        return found

    @property
    def neural(self) -> NeuralParameters:
        found = self.parameters["neural"]
        assert isinstance(found, NeuralParameters)
        return found

    def of(self, model: str) -> Parameters:
        """The parameters of one model of the run; a search begins with those of the model it is for."""
        return self.parameters[base_model(model)]

    def of_trial(self, spec: TrialSpec) -> Parameters:
        """The parameters of a trial: those of its model, but for the values that are fixed for it alone."""
        found = self.of(spec.model)
        return type(found).model_validate({**dict(found), **spec.fixed}) if spec.fixed else found


def resolve(
    config: RunConfig,
    *,
    preset: Preset,
    strategy: str,
    size: TableSize,
    device: str,
    tree_device: Callable[[str], str],
    seconds: Mapping[Branch, float | None] | None = None,
) -> Resolved:
    """Fill in every open parameter of the models. It never changes the user's values.

    `tree_device` gives the device on which a tree engine trains, `seconds` the time that a model of a branch
    has if time is limited.
    """
    limits = seconds or {}

    def filled(section: ModelSection) -> ModelSection:
        if isinstance(section, TreesConfig):
            on = tree_device(section.engine_name)
            return fill(section, tree_defaults(section, preset, size, on, limits.get("trees")))
        if isinstance(section, ContextConfig):
            return fill(section, context_defaults(section, preset, device))
        values = neural_defaults(section, preset, device, size, limits.get("neural"))
        return fill(section, {**values, "strategy": strategy})

    parameters: dict[str, Parameters] = {}
    written: dict[str, Any] = {}
    for name in dict.fromkeys((*OWN, *config.model_names)):
        section = config.section(name)
        found = filled(section)
        kind = next(one for base, one in _KINDS if isinstance(found, base))
        parameters[name] = kind.model_validate(found.model_dump(exclude_none=True))
        # What a search may change stays open, so that the written run can be repeated. A network's own table
        # has each other value, since it would take the missing ones from [neural].
        is_open = dict.fromkeys(free_keys(section) if config.search else ())
        written[name] = {**dict(found if name in OWN else parameters[name]), **is_open}

    def table(model: TreesModel | NetworkModel | ContextModel) -> TreesModel | NetworkModel | ContextModel:
        values = {key: written[model.name][key] for key in type(model).model_fields if key != "name"}
        given = {key: value for key, value in values.items() if value is not None}
        return type(model)(name=model.name, **given)

    update = {
        "preset": preset,
        "data": config.data.model_copy(update={"task": size.task}),
        "calibrate": config.calibrates(size.task),
        "trees": config.trees.model_copy(update=written["trees"]),
        "neural": config.neural.model_copy(update=written["neural"]),
        "models": tuple(model if isinstance(model, str) else table(model) for model in config.models),
    }
    return Resolved(config=config.model_copy(update=update), parameters=parameters)


def context_defaults(config: ContextConfig, preset: Preset, device: str) -> dict[str, Value]:
    """The most that an in-context model reads, by its entry; less on a CPU, and half the views if fast."""
    found = {key: int(value) for key, value in ENGINES.find(config.engine).defaults.items()}
    if not device.startswith("cuda"):
        found["rows"] = min(found["rows"], _MOST_CONTEXT_ON_CPU)
    if preset == "fast":
        found["estimators"] = max(1, found["estimators"] // 2)
    return dict(found)


def neural_defaults(
    config: NeuralConfig,
    preset: Preset,
    device: str,
    size: TableSize = _UNKNOWN,
    seconds: float | None = None,
) -> dict[str, Value]:
    """The network's parameters by architecture, preset and table (until it is known, for a small one).

    If time is limited to `seconds`, a large table gets as many epochs as they may hold, and a preset's
    network that they may not train becomes that of the next smaller one.
    """
    network = NETWORKS.find(config.architecture)
    task, train_rows = size.task, size.train_rows
    found: dict[str, Value] = {**network.learning, **network.presets[preset]}
    if train_rows >= _MANY_ROWS:
        found |= network.on_many_rows
        if preset == "fast":
            found |= network.fast_on_many_rows
    if preset == "fast" and train_rows < FEW_ROWS:
        found |= network.fast_on_few_rows
    if preset == "balanced" and not device.startswith("cuda"):
        found |= network.balanced_on_cpu
    if preset == "fast" and train_rows >= _MANY_ROWS and seconds is not None and "epochs" in found:
        times = min(max(seconds / _FAST_S, 1.0), _MOST_TIMES)
        few = found["epochs"]
        assert isinstance(few, int)
        found["epochs"] = round(times * few)
    is_wide = preset == "fast" and size.num_features >= _WIDE
    if is_wide:
        found |= network.fast_on_many_columns
    wanted = _FAST_STEPS
    if task == "regression" and train_rows < _SMALL_REGRESSION:
        if preset != "fast":
            found |= network.thorough_on_small_regression
        elif network.fast_on_small_regression:
            found |= network.fast_on_small_regression
            wanted = _FAST_STEPS_OF_SMALL_REGRESSION
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
        found["epochs"] = round(share * min(max(round(wanted / steps), least), most))
    if preset == "fast" and (is_wide or train_rows < _MANY_ROWS):
        epoch_flop = max(1, train_rows) * row_flop(fill(config, found), size.num_features)
        epochs = found["epochs"]
        assert isinstance(epochs, int)
        found["epochs"] = max(1, min(epochs, int(_FAST_FLOP / epoch_flop)))
    if seconds is not None and preset in _SMALLER and not device.startswith("cuda"):
        filled = fill(config, found)
        epochs = min(filled.epochs or 1, _EPOCHS_PER_PATIENCE * (filled.patience or filled.epochs or 1))
        if epochs * train_rows * row_flop(filled, size.num_features) > _FLOP_PER_S * seconds:
            return neural_defaults(config, _SMALLER[preset], device, size, seconds)
    return {**found, "micro_batch_size": config.batch_size or found["batch_size"]}


def row_flop(config: NeuralConfig, num_features: int) -> float:
    """Floating-point operations to train on one row: forward, and twice as many backward."""
    hidden, members = config.hidden or (1,), config.members or 1
    each = config.embedding_dim or 1 if (config.num_bins or 1) > 1 else 1
    return 6.0 * members * sum(a * b for a, b in pairwise((num_features * each, *hidden)))


def fill(section: SectionT, values: Mapping[str, Value]) -> SectionT:
    """A copy of `section` with `values` for the keys that are still open."""
    return section.model_copy(
        update={key: value for key, value in values.items() if getattr(section, key) in (None, "auto")}
    )
