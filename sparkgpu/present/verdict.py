"""The answer of a run in one sentence, and what to run next: commands to copy, each with its reason.

Limits: at most `MOST` steps, the most promising first; using the model is always one of them. A command
repeats the run with its own configuration and one change, so it names the run directory.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sparkgpu.core.config.model_keys import OWN
from sparkgpu.core.config.registry.engines import branch_of
from sparkgpu.core.rundir.metrics_json import PairResult, Results
from sparkgpu.core.words import capital, counted, metric_title, number_text, seconds_text
from sparkgpu.present.entries import contestants, entries
from sparkgpu.present.result_tables import reason, signed
from sparkgpu.score.metrics import best, greater_is_better

MOST = 3
_FEW_ROWS = 5_000
_LIMITS = {"trees": ("trees", "ntrees"), "neural": ("epochs", "epochs")}

_Pairs = Mapping[frozenset[str], PairResult]


def verdict(results: Results) -> str:
    """Trees or network; with more models also the best of them, and the blend if it leads."""
    found, of = results.comparison, entries(results)
    finished = {one.name: one.value for one in of if one.value is not None}
    pairs = {frozenset((pair.a, pair.b)): pair for pair in found.pairs}
    if not finished:
        return "No model finished, so there is nothing to compare; the failed trials below give the reasons."
    title = metric_title(found.metric)
    alone = [name for name in finished if name != "blend"]
    pair = pairs.get(frozenset(OWN)) or (pairs.get(frozenset(alone)) if len(alone) == 2 else None)
    if pair is None and len(alone) < 3:
        return _without_pair(results, finished, title)
    text = in_words(pair, found.metric, finished) if pair else ""
    valid = {one.name: one.metrics("valid").get(found.metric) for one in of if one.name in alone}
    if len(alone) > 2 and (first := next(iter(best(found.metric, valid)), None)):
        text += (
            f"; the validation rows favour {_called(first)} of all {len(alone)} models "
            f"({title} {number_text(finished[first])} on the test rows)"
        )
    if found.leader == "blend" and any(one.name == "blend" for one in contestants(of)):
        text += f"; {_of_blend(pairs, alone)} {number_text(finished['blend'])}"
    return f"{capital(text.removeprefix('; '))}."


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
    ends = (signed(end, width).removeprefix("+") for end in (low, high))
    interval = f"95 % interval {' to '.join(ends)}"
    direction = "" if greater_is_better(metric) else ", smaller is better"
    values_text = [number_text(values.get(name)) for name in (first, second)]
    if pair.verdict == "tie":
        return (
            f"{_called(first)} and {_called(second)} are level: {title} {values_text[0]} and {values_text[1]}"
            f"{direction}, and a difference of {size} could be chance ({interval})"
        )
    are = "are" if first == "trees" else "is"
    return (
        f"{_called(first)} {are} ahead of {_called(second)}: {title} {values_text[0]} against "
        f"{values_text[1]}{direction}, a difference of {size} ({interval})"
    )


def _called(name: str) -> str:
    return {"trees": "trees", "neural": "the network", "blend": "the blend"}.get(name, name)


def _without_pair(results: Results, finished: Mapping[str, float], title: str) -> str:
    reached = " and ".join(
        f"{_called(name)} reached {title} {number_text(value)}" for name, value in finished.items()
    )
    alone = len(finished) == 1 and all(model.status != "left out" for model in results.models)
    failed = "; the other branch did not finish, so there is nothing to compare" if alone else ""
    return f"{capital(reached)} on the test split{failed}."


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


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """A command and the sentence that gives its reason."""

    reason: str
    command: str


def next_steps(found: Results, *, folder: str, settings: str = "") -> tuple[NextStep, ...]:
    """The steps after the run in `folder`; a repetition needs `settings` besides its ``run.toml``."""
    again = f"sparkgpu run --config {shlex.quote(f'{folder}/run.toml')}"
    better = [*_mend(found, resume(folder)), *_train_longer(found, again), *_use_all_rows(found, again)]
    use = _use(found, folder)
    kept = (
        replace(step, command=f"{step.command} {settings}".rstrip()) for step in better[: MOST - len(use)]
    )
    return (*kept, *use)


def resume(folder: str) -> str:
    """The command that trains what is missing in `folder`."""
    return f"sparkgpu run --resume --out {shlex.quote(folder)}"


def _mend(found: Results, resumed: str) -> Iterator[NextStep]:
    if failed := found.failed:
        which = failed[0].name if len(failed) == 1 else counted(len(failed), "trial")
        reason = f"{which} failed: with its cause mended, this trains only what is missing."
        yield NextStep(reason=reason, command=resumed)


def _train_longer(found: Results, again: str) -> Iterator[NextStep]:
    done, limit = found.done(), found.run.time_limit_s
    late = sorted({trial.model for trial in done if trial.out_of_time})
    if late and limit:
        yield NextStep(
            reason=f"The time limit of {seconds_text(limit)} ended the training of {', '.join(late)}.",
            command=f"{again} --time-limit {_round_time(2 * limit)}",
        )
        return
    for model in OWN:
        cut = [trial for trial in found.done(model) if trial.still_improving and trial.most_steps]
        if not cut:
            continue
        most = max(trial.most_steps or 0 for trial in cut)
        branch = branch_of(cut[0].engine)
        unit, key = _LIMITS[branch]
        yield NextStep(
            reason=f"{capital(_the(model))} still improved at the limit of {most:,} {unit}.",
            command=f"{again} --set {branch}.{key}={2 * most}",
        )


def _use_all_rows(found: Results, again: str) -> Iterator[NextStep]:
    has_folds = any(trial.fold is not None for trial in found.trials)
    if found.data.rows < _FEW_ROWS and found.done() and not has_folds and not found.run.time_limit_s:
        valid = found.data.splits.get("valid", 0)
        yield NextStep(
            reason=f"Only {counted(valid, 'validation row')} chose; over folds every row trains and chooses.",
            command=f"{again} --preset best --time-limit 5m",
        )


def _use(found: Results, folder: str) -> list[NextStep]:
    leader = found.comparison.leader
    if leader is None:
        return []
    reason = f"Predict new rows with {_the(leader)}, the best on the validation rows."
    command = f"sparkgpu predict {shlex.quote(folder)} new_rows.parquet --out predictions.parquet"
    return [NextStep(reason=reason, command=command)]


def _the(model: str) -> str:
    return "the trees" if model == "trees" else _called(model)


def _round_time(seconds: float) -> str:
    return f"{math.ceil(seconds / 60)}m" if seconds >= 60 else f"{math.ceil(seconds)}s"
