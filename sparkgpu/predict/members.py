"""Which trials make up a model of a run, and with which weights."""

from __future__ import annotations

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.intervals import Conformal
from sparkgpu.core.rundir.metrics_json import DecisionResult, ModelResult, Results
from sparkgpu.core.words import listed, nearest

BEST = "best"
"""The name of the model that led on the validation rows."""


def model_name(results: Results, asked: str, where: str) -> str:
    """The name of the model or trial that `asked` means.

    Raises `ConfigError` if the run of folder `where` has no such model, or if it has not finished.
    """
    asked = str(asked)
    if asked == BEST:
        if results.comparison.leader is None:
            raise ConfigError(f"{where}: no model of this run finished, so nothing can predict.")
        return results.comparison.leader
    done = {trial.name for trial in results.done()}
    usable = [model.name for model in results.models if model.trials and done.issuperset(model.trials)]
    names = [BEST, *usable, *sorted(done)]
    if asked in names:
        return asked
    unfinished = [model.name for model in results.models] + [trial.name for trial in results.failed]
    why = "did not finish in" if asked in unfinished else "is not in"
    hint = "" if asked in unfinished else nearest(asked, names)
    raise ConfigError(f"model {asked!r}: it {why} this run.{hint} Choose one of {listed(names)}.")


def weights_of(results: Results, name: str) -> dict[str, float]:
    """The weight of each trial in the model or trial called `name`; the trials of a model count equally."""
    models = {model.name: model for model in results.models}
    if name not in models:
        return {name: 1.0}
    model = models[name]
    if model.weights is None:
        return _shares(model, 1.0)
    found: dict[str, float] = {}
    for member, weight in model.weights.items():
        if weight:
            found |= _shares(models[member], weight)
    return found


def decision_of(results: Results, name: str) -> DecisionResult | None:
    """How a model or one of a model's trials decides, if the run has a rule for it."""
    found = [model for model in results.models if model.name == name]
    found += [model for model in results.models if name in model.trials and model.weights is None]
    return found[0].decision if found else None


def intervals_of(results: Results, name: str) -> Conformal | None:
    """The intervals or sets of a model, or of the trial that alone makes a model; None without."""
    found = [one for one in results.models if name == one.name or (one.trials == (name,) and not one.weights)]
    return next((one.intervals.fitted for one in found if one.intervals), None)


def _shares(model: ModelResult, weight: float) -> dict[str, float]:
    return {trial: weight / len(model.trials) for trial in model.trials}
