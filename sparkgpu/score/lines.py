"""The models of runs as lines of a leaderboard, from their results alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkgpu.rundir.results import MetricValues, Results
from sparkgpu.score.metrics import score


@dataclass(frozen=True, kw_only=True)
class Line:
    """A model of a run; a model of several trials is scored by their averaged predictions.

    Seconds are means over its trials, None for a blend.
    """

    run: str
    model: str
    engine: str
    metrics: MetricValues
    valid: MetricValues
    fit_s: float | None
    predict_s: float | None


def lines_of(run: str, results: Results) -> list[Line]:
    """The models of one run called `run`, also those without a score; no blend that is one model again."""
    lines = []
    for model in results.models:
        if model.only:
            continue
        done = results.done(model.name)
        found = model.averaged or model.metrics
        lines.append(
            Line(
                run=run,
                model=model.name,
                engine=model.engine or "",
                metrics=found.test,
                valid=found.valid,
                fit_s=sum(trial.fit_s for trial in done) / len(done) if done else None,
                predict_s=sum(trial.predict_s for trial in done) / len(done) if done else None,
            )
        )
    return lines


def ranked(metric: str, lines: Iterable[Line]) -> list[Line]:
    """Those with a value of `metric` on the test rows, the best first."""
    known = [
        (score(metric, value), line) for line in lines if (value := line.metrics.get(metric)) is not None
    ]
    known.sort(key=lambda pair: -pair[0])
    return [line for _, line in known]
