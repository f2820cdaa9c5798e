"""Which settings of a model a search may change, and between which values. Pure."""

from __future__ import annotations

from sparkgpu.config.models import NeuralConfig, TreesConfig
from sparkgpu.config.parameters import NeuralParameters, TreesParameters
from sparkgpu.config.registry.engines import ENGINES
from sparkgpu.config.registry.networks import NETWORKS
from sparkgpu.config.registry.search_space import Choice, Range, SearchSpace

TUNED = "-tuned"
"""What the name of a model has at its end if a search chose its settings."""


def free_keys(section: TreesConfig | NeuralConfig) -> tuple[str, ...]:
    """The keys that a search may change: those of the model's space that the user left open."""
    return tuple(key for key in _space(section) if getattr(section, key) is None)


def search_space(parameters: TreesParameters | NeuralParameters, free: tuple[str, ...]) -> SearchSpace:
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


def _space(section: TreesConfig | NeuralConfig) -> SearchSpace:
    if isinstance(section, TreesConfig):
        return ENGINES.find(section.engine_name).search
    return NETWORKS.find(section.architecture).search


def _counts(key: str, parameters: TreesParameters | NeuralParameters) -> bool:
    """Whether a key has a meaning beside the others: a limit of 0 is none, and few leaves are few levels."""
    if isinstance(parameters, NeuralParameters):
        return key != "num_bins" or parameters.number_embedding == "piecewise"
    if key == "max_leaves":
        return parameters.grow_policy == "lossguide" and parameters.max_leaves > 0
    return key != "max_depth" or parameters.max_depth > 0
