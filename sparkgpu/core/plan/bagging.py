"""What the preset `best` adds where time is limited: every kind of model that is installed, over folds.

Each row outside the test split trains some models and is predicted by the others, and these predictions
choose the blend's weights. Then further seeds train, on each fold, while they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparkgpu.core.config.keys import RunConfig, SplitConfig
from sparkgpu.core.config.model_keys import OWN, NetworkModel, TreesModel
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.words import listed

_FOLDS = 8
_FEWEST_ROWS = 25 * _FOLDS
# Rows for each second of the limit. Of more rows, larger networks gain more than further kinds of models; and
# from far fewer rows on, more than folds do.
_MOST_ROWS_PER_S = 50.0
_MOST_FOLDED_ROWS_PER_S = 10.0
_ENGINES = ("lightgbm", "catboost")
_NETWORK = "realmlp"


def bagged(config: RunConfig, rows: Callable[[int], int | None]) -> tuple[RunConfig, Mapping[str, str]]:
    """`config` with what it left open, and the reason of each choice; nothing for other runs.

    `rows` gives the number of the source's rows, or None if there are more than so many, or if it is unknown.
    """
    if not config.is_best_in_time or config.search is not None or config.cluster.nodes > 1:
        return config, {}
    limit = config.time_limit or 0.0
    found = rows(round(_MOST_ROWS_PER_S * limit))
    if found is None:
        return config, {}
    update: dict[str, Any] = {}
    reasons = {}
    is_open = config.models == OWN and "models" not in config.model_fields_set
    if is_open and (further := _further(config)):
        update["models"] = (*OWN, *further)
        reasons["models"] = (
            f"with {listed(model.name for model in further)}, all that are installed here, by the best "
            "preset within a time limit"
        )
    if _FEWEST_ROWS <= found <= _MOST_FOLDED_ROWS_PER_S * limit and _is_cut_anyhow(config):
        update["split"] = config.split.model_copy(update={"folds": _FOLDS})
        reasons["folds"] = (
            f"{_FOLDS}, by the best preset within a time limit: every row outside the test split trains, and "
            "the blend's weights come from predictions of rows that a model has not seen"
        )
    return config.model_copy(update=update), reasons


def _further(config: RunConfig) -> list[TreesModel | NetworkModel]:
    """The kinds of models beside the run's own that are installed and learn its distribution."""
    trees = config.trees
    found: list[TreesModel | NetworkModel] = []
    for name in _ENGINES:
        entry = ENGINES.find(name)
        learns = trees.distribution in entry.distributions and trees.grow_policy in (None, *entry.grows)
        if learns and not entry.missing and name != trees.engine_name:
            # On a GPU CatBoost has no callbacks, and so it would not keep the limit.
            found.append(TreesModel(name=name, engine=name, tree_method="hist"))
    if config.neural.architecture != _NETWORK:
        found.append(NetworkModel(name=_NETWORK, architecture=_NETWORK))
    return found


def _is_cut_anyhow(config: RunConfig) -> bool:
    """Whether nobody said which rows validate, or which rows stay together."""
    split, usual = config.split, SplitConfig()
    return (split.kind, split.folds, split.valid) == (usual.kind, None, usual.valid) and not config.data.valid
