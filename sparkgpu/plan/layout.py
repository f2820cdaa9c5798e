"""Which trials a run has, and which lane runs each."""

from __future__ import annotations

from sparkgpu.config.keys import RunConfig
from sparkgpu.config.models import TreesConfig
from sparkgpu.config.registry.engines import Branch
from sparkgpu.config.registry.strategies import STRATEGIES
from sparkgpu.errors import ConfigError
from sparkgpu.plan.search_space import TUNED, free_keys
from sparkgpu.plan.trial_spec import TrialSpec


def lay_out_trials(
    config: RunConfig, repeats: int, lanes: int, strategy: str, *, nodes: int = 1, cloud: bool = False
) -> tuple[TrialSpec, ...]:
    """The trials of each seed and fold, spread over the lanes; in a `cloud` each trial uses all lanes.

    The trials of a branch go to the lanes in turn, so that several lanes train several models at once.
    """
    folds: tuple[int | None, ...] = tuple(range(config.split.folds)) if config.split.folds else (None,)
    next_lane: dict[Branch, int] = {"trees": 0, "neural": 0}
    lane_of_search: dict[tuple[str, int], int] = {}
    trials = []
    for repeat, fold in ((r, f) for r in range(repeats) for f in folds):
        seed = config.seed + repeat
        suffix = f"s{seed}" if fold is None else f"s{seed}-f{fold}"
        for model, settings in _to_train(config):
            section, branch = config.section(base_model(model)), config.branch(base_model(model))
            is_gang = cloud or (branch == "neural" and STRATEGIES.find(strategy).is_gang)
            if settings and fold:  # one search covers all folds
                lane = lane_of_search[model, seed]
            else:
                lane = 0 if is_gang else next_lane[branch] % lanes
                next_lane[branch] += 1
            lane_of_search[model, seed] = lane
            trials.append(
                TrialSpec(
                    name=f"{model}-{suffix}",
                    model=model,
                    engine=section.engine_name if isinstance(section, TreesConfig) else "torch",
                    seed=seed,
                    fold=fold,
                    lane=lane,
                    gang=tuple(range(lanes)) if is_gang else (lane,),
                    strategy=strategy if branch == "neural" else "single",
                    nodes=nodes if is_gang else 1,
                    settings=settings,
                    free=free_keys(section) if settings else (),
                )
            )
    return tuple(trials)


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
