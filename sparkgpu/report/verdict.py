"""The answer of a run in one sentence, for people: in the report and in notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkgpu.report.tables import reason, signed
from sparkgpu.rundir.results import PairResult, Results
from sparkgpu.score.metrics import best, greater_is_better
from sparkgpu.words import metric_title, number_text

_OWN = ("trees", "neural")

_Pairs = Mapping[frozenset[str], PairResult]


def verdict(results: Results) -> str:
    """Trees or network; with more models also the best of them, and the blend if it leads."""
    found = results.comparison
    scores = {
        model.name: (model.averaged or model.metrics).test.get(found.metric) for model in results.models
    }
    finished = {name: value for name, value in scores.items() if value is not None}
    pairs = {frozenset((pair.a, pair.b)): pair for pair in found.pairs}
    if not finished:
        return "No model finished, so there is nothing to compare; the failed trials below give the reasons."
    title = metric_title(found.metric)
    alone = [name for name in finished if name != "blend"]
    pair = pairs.get(frozenset(_OWN)) or (pairs.get(frozenset(alone)) if len(alone) == 2 else None)
    if pair is None and len(alone) < 3:
        return _without_pair(results, finished, title)
    text = in_words(pair, found.metric, finished) if pair else ""
    if len(alone) > 2 and (first := _first(results, alone)):
        text += (
            f"; the validation rows favour {_called(first)} of all {len(alone)} models "
            f"({title} {number_text(finished[first])} on the test rows)"
        )
    is_again = any(model.only for model in results.models if model.name == "blend")
    if found.leader == "blend" and "blend" in finished and not is_again:
        text += f"; {_of_blend(pairs, alone)} {number_text(finished['blend'])}"
    return f"{_capital(text.removeprefix('; '))}."


def in_words(pair: PairResult, metric: str, values: Mapping[str, float]) -> str:
    """Two models with their values, the better one first, and whether their difference could be chance."""
    title = metric_title(metric)
    low, high = pair.ci95
    if low is None or high is None or pair.difference is None:
        return f"{_called(pair.a)} and {_called(pair.b)} cannot be told apart in {title}: {reason(pair)}"
    if low == high == 0:
        return f"{_called(pair.a)} and {_called(pair.b)} are equal in {title}: {reason(pair)}"
    a_first = (pair.difference > 0) == greater_is_better(metric)
    first, second = (pair.a, pair.b) if a_first else (pair.b, pair.a)
    difference = pair.difference
    if difference < 0:
        difference, low, high = -difference, -high, -low
    width = high - low
    size = signed(difference, width).removeprefix("+")
    interval = f"95 % interval {_from(low, width)} to {_from(high, width)}"
    direction = "" if greater_is_better(metric) else ", smaller is better"
    values_text = [number_text(values.get(name)) for name in (first, second)]
    if pair.verdict == "tie":
        return (
            f"{_called(first)} and {_called(second)} are level: {title} {values_text[0]} and {values_text[1]}"
            f"{direction}, and a difference of {size} could be chance ({interval})"
        )
    return (
        f"{_called(first)} {_are(first)} ahead of {_called(second)}: {title} {values_text[0]} against "
        f"{values_text[1]}{direction}, a difference of {size} ({interval})"
    )


def _from(value: float, width: float) -> str:
    return signed(value, width).removeprefix("+")


def _called(name: str) -> str:
    return {"trees": "trees", "neural": "the network", "blend": "the blend"}.get(name, name)


def _are(name: str) -> str:
    return "are" if name == "trees" else "is"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _without_pair(results: Results, finished: Mapping[str, float], title: str) -> str:
    reached = " and ".join(
        f"{_called(name)} reached {title} {number_text(value)}" for name, value in finished.items()
    )
    left_out = any(model.status == "left out" for model in results.models)
    why = "was left out" if left_out else "did not finish"
    alone = f"; the other branch {why}, so there is nothing to compare" if len(finished) == 1 else ""
    return f"{_capital(reached)} on the test split{alone}."


def _first(results: Results, names: Sequence[str]) -> str | None:
    metric = results.comparison.metric
    values = {
        model.name: (model.averaged or model.metrics).valid.get(metric)
        for model in results.models
        if model.name in names
    }
    return next(iter(best(metric, values)), None)


def _of_blend(pairs: _Pairs, models: Sequence[str]) -> str:
    """The words for a blend with the best value: it leads only if no difference is a tie."""
    of_all = "the blend of both" if len(models) == 2 else "the blend"
    level = [
        name for name in models if (pair := pairs.get(frozenset(("blend", name)))) and pair.verdict == "tie"
    ]
    if not level:
        return f"{of_all} leads with"
    others = "all of them" if len(level) == len(models) > 2 else " and ".join(map(_called, level))
    return f"{of_all}, level with {others}, reaches"
