"""The trials of a run: models, seeds and folds, settings that a search may change, and their lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from pydantic import Field

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.model_keys import ModelSection, NeuralConfig
from sparkgpu.core.config.parameters import NeuralParameters, Parameters, TreesParameters
from sparkgpu.core.config.registry.engines import ENGINES, Branch, branch_of
from sparkgpu.core.config.registry.entries import Choice, Range, SearchSpace
from sparkgpu.core.config.registry.networks import NETWORKS
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.files import Name, Record


class TrialSpec(Record):
    """One model with one seed and one fold, on one lane or, as a gang, on the devices of several lanes.

    `lane` runs it; `gang` are the lanes whose devices it uses, on each of `nodes` machines. If it is
    `probed`, its engine is tried on the device first, and where that does not train there, `otherwise` takes
    its place. It may search: it tries that many `settings`, which differ in the `free` keys. The values in
    `fixed` stand in place of those of its model.
    """

    name: Name
    model: Name
    engine: str
    seed: int
    fold: int | None
    lane: int
    gang: tuple[int, ...]
    strategy: str = "single"
    nodes: int = 1
    probed: bool = False
    otherwise: str | None = None
    settings: int = 0
    free: tuple[str, ...] = ()
    fixed: dict[str, Any] = Field(default_factory=dict)

    @property
    def target(self) -> str | None:
        """Of several targets, the folder of the only one that it learns; it stands before its own name."""
        return self.name.rpartition(":")[0] or None

    @property
    def own_name(self) -> str:
        """Its name among the trials of its target."""
        return self.name.rpartition(":")[2]

    @property
    def branch(self) -> Branch:
        return branch_of(self.engine)

    @property
    def num_ranks(self) -> int:
        """The number of processes that train it together, if its strategy uses several."""
        return self.nodes * len(self.gang)


def of_first_seed(trials: Sequence[TrialSpec]) -> list[TrialSpec]:
    """Those that should train in a limited time; trials of further seeds take what is left of it."""
    return [spec for spec in trials if spec.seed == min(spec.seed for spec in trials)]


_SHARING_FOLDS = 2  # more would leave slow models too little time to learn anything


def sharing_time(trials: Sequence[TrialSpec]) -> list[TrialSpec]:
    """Those of the first seed, and of the first folds, that share a limited time."""
    first = of_first_seed(trials)
    folds = sorted({spec.fold or 0 for spec in first})[:_SHARING_FOLDS]
    return [spec for spec in first if (spec.fold or 0) in folds]


TUNED = "-tuned"
"""What the name of a model has at its end if a search chose its settings."""


def free_keys(section: ModelSection) -> tuple[str, ...]:
    """The keys that a search may change: those of the model's space that the user left open."""
    return tuple(key for key in _space(section) if getattr(section, key) is None)


def search_space(parameters: Parameters, free: tuple[str, ...]) -> SearchSpace:
    """The ranges of the `free` keys, wide enough for the default values in `parameters`."""
    found: dict[str, Range | Choice] = {}
    for key, values in _space(parameters).items():
        default = getattr(parameters, key)
        if key not in free or not _counts(key, parameters):
            continue
        if isinstance(values, Choice):
            more = () if default in values.values else (default,)
            found[key] = Choice((*values.values, *more))
        elif not (values.log and default <= 0):
            low, high = min(values.low, default), max(values.high, default)
            found[key] = Range(low=low, high=high, log=values.log, whole=values.whole)
    return found


def _space(section: ModelSection) -> SearchSpace:
    if isinstance(section, NeuralConfig):
        return NETWORKS.find(section.architecture).search
    return ENGINES.find(section.engine_name).search


def _counts(key: str, parameters: Parameters) -> bool:
    """Whether a key has a meaning beside the others: a limit of 0 is none, and few leaves are few levels."""
    if isinstance(parameters, NeuralParameters):
        return key != "num_bins" or parameters.number_embedding == "piecewise"
    if not isinstance(parameters, TreesParameters):
        return True
    if key == "max_leaves":
        return parameters.grow_policy == "lossguide" and parameters.max_leaves > 0
    return key != "max_depth" or parameters.max_depth > 0


def lay_out_trials(
    config: RunConfig,
    repeats: int,
    lanes: int,
    strategy: str,
    *,
    nodes: int = 1,
    cloud: bool = False,
    probed: Sequence[str] = (),
    otherwise: str | None = None,
) -> tuple[TrialSpec, ...]:
    """The trials of each seed and fold, spread over the lanes; in a `cloud` each trial uses all it can.

    The trials of a branch go to the lanes in turn, so that several lanes train several models at once. The
    engines of the `probed` models are tried first; `otherwise` is the engine that may take their place.
    """
    folds: tuple[int | None, ...] = tuple(range(config.split.folds)) if config.split.folds else (None,)
    next_lane: dict[Branch, int] = {"trees": 0, "neural": 0}
    lane_of_search: dict[tuple[str, int], int] = {}
    trials = []
    for seed, fold in product(range(config.seed, config.seed + repeats), folds):
        suffix = f"s{seed}" if fold is None else f"s{seed}-f{fold}"
        for target, model, settings in _by_target(config):
            base = base_model(model)
            section, branch = config.section(base), config.branch(base)
            spread = strategy if isinstance(section, NeuralConfig) else "single"
            spreads = isinstance(section, NeuralConfig) or ENGINES.find(section.engine_name).spreads
            is_gang = (cloud and spreads) or STRATEGIES.find(spread).is_gang
            if settings and fold:  # one search covers all folds
                lane = lane_of_search[model, seed]
            else:
                lane = 0 if is_gang or cloud else next_lane[branch] % lanes
                next_lane[branch] += 1
            lane_of_search[model, seed] = lane
            trials.append(
                TrialSpec(
                    name=f"{target}:{model}-{suffix}" if target else f"{model}-{suffix}",
                    model=model,
                    engine=section.engine_name,
                    seed=seed,
                    fold=fold,
                    lane=lane,
                    gang=tuple(range(lanes)) if is_gang else (lane,),
                    strategy=spread,
                    nodes=nodes if is_gang else 1,
                    probed=base in probed,
                    otherwise=otherwise if base in probed else None,
                    settings=settings,
                    free=free_keys(section) if settings else (),
                )
            )
    return tuple(trials)


def _by_target(config: RunConfig) -> Iterator[tuple[str | None, str, int]]:
    """The models to train, each for all targets together (None) or for one after the other."""
    for model, settings in _to_train(config):
        section = config.section(base_model(model))
        is_joint = isinstance(section, NeuralConfig) and NETWORKS.find(section.architecture).joint
        for target in (None,) if is_joint else config.data.folders or (None,):
            yield target, model, settings


def _to_train(config: RunConfig) -> list[tuple[str, int]]:
    """The models of a run by name, those whose settings are searched after them, with how many to try."""
    names = [(name, 0) for name in config.model_names]
    if config.search is None:
        return names
    searched = [name for name in config.model_names if free_keys(config.section(name))]
    if not searched:
        raise ConfigError(
            f"search = {config.search}: every setting that a search may change is set, so there is nothing "
            "to try. Leave some of them out; a run.toml that a run without a search wrote sets them all."
        )
    return names + [(f"{name}{TUNED}", config.search) for name in searched]


def base_model(model: str) -> str:
    """The model whose settings a model's search began with, or itself."""
    return model.removesuffix(TUNED)
