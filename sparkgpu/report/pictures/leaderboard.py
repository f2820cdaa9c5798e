"""The models of a run by their main metric, with its interval: a dot with whiskers for each."""

from __future__ import annotations

from collections.abc import Mapping

from sparkgpu.report.figure import Picture
from sparkgpu.report.leaderboard import Interval, ranked, value_of
from sparkgpu.report.palette import styles
from sparkgpu.report.pictures.ranks import Rank, ranks
from sparkgpu.report.pictures.shared import short
from sparkgpu.rundir.results import Results
from sparkgpu.words import metric_title

_WIDTH = 4.0


def dots_and_whiskers(found: Results, intervals: Mapping[str, Interval]) -> Picture | None:
    """The best model on top; small marks are its trials, where it has several. None without a value."""
    metric = found.comparison.metric
    looks = styles(model.name for model in found.models)
    rows = [
        Rank(
            name=short(model.name, 18), value=value, ci95=intervals.get(model.name, (None, None)),
            style=looks[model.name], parts=_trials(found, model.name, metric) if model.averaged else (),
        )
        for model in ranked(found)
        if (value := value_of(model, metric)) is not None
    ]  # fmt: skip
    whiskers = ", with its 95 % interval" if intervals else ""
    marks = " Small marks: its trials." if any(row.parts for row in rows) else ""
    title = metric_title(metric)
    caption = f"{title[0].upper()}{title[1:]} of each model on the test rows{whiskers}.{marks}"
    return ranks("leaderboard", metric, rows, caption, width=_WIDTH)


def _trials(found: Results, model: str, metric: str) -> tuple[float, ...]:
    values = (trial.metrics.test.get(metric) for trial in found.done(model))
    return tuple(value for value in values if value is not None)
