"""The answer of a run in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkgpu.rundir.results import PairResult, Results
from sparkgpu.score.metrics import best
from sparkgpu.words import listed, metric_title, number_text

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
    text = pair.sentence if pair else ""
    if len(alone) > 2 and (first := _first(results, alone)):
        text += f"; of all {len(alone)} models {first} is best on the validation rows, with {title} "
        text += f"{number_text(finished[first])} on the test rows"
    if found.leader == "blend" and "blend" in finished:
        text += f"; {_of_blend(pairs, alone)} {title} {number_text(finished['blend'])}"
    text = text.removeprefix("; ")
    return f"{text[0].upper()}{text[1:]}."


def _without_pair(results: Results, finished: Mapping[str, float], title: str) -> str:
    reached = " and ".join(f"{name} reached {title} {number_text(value)}" for name, value in finished.items())
    left_out = any(model.status == "left out" for model in results.models)
    why = "was left out" if left_out else "did not finish"
    alone = f"; the other branch {why}, so there is nothing to compare" if len(finished) == 1 else ""
    return f"{reached[0].upper()}{reached[1:]} on the test split{alone}."


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
    return f"{of_all}, level with {listed(level)}, reaches"
