"""The tables of a run's models, for its page, the terminal and a notebook.

A model has the value of its averaged predictions, except where means over its trials are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sparkgpu.core.rundir.checks import HOW_TO
from sparkgpu.core.rundir.groups import ColumnGroups, Estimate
from sparkgpu.core.rundir.intervals import Coverage
from sparkgpu.core.rundir.metrics_json import DecisionResult, DoneTrial, ModelResult, Results
from sparkgpu.core.words import capital, counted, metric_title, number_text, seconds_text
from sparkgpu.present.entries import Split, entries, ranked
from sparkgpu.present.result_tables import signed, signed_interval
from sparkgpu.present.table_model import (
    DASH,
    Cell,
    Table,
    cells,
    interval_cell,
    number_cell,
    seconds_cell,
    table_of,
    three_digits,
    whole_cell,
)
from sparkgpu.score.compare import Interval
from sparkgpu.score.metrics import best, greater_is_better, score

MOST_ACROSS = 4
"""More models than these stand below each other."""

_ROUNDING = 1e-9  # relative


def metric_cells(
    models: Sequence[ModelResult], split: Split = "test", *, averaged: bool = False
) -> dict[str, tuple[Cell, ...]]:
    """For each metric the models in order: means over trials with their spread, or of `averaged` predictions.

    No value is best if only one model has a value.
    """
    values = {model.name: ((averaged and model.averaged) or model.metrics).of(split) for model in models}
    spreads = {model.name: model.std.test for model in models if split == "test" and not averaged}
    found = {}
    for metric in dict.fromkeys(metric for of_model in values.values() for metric in of_model):
        of_metric = {name: of_model.get(metric) for name, of_model in values.items()}
        several = sum(value is not None for value in of_metric.values()) > 1
        first = best(metric, of_metric) if several else ()
        found[metric] = tuple(
            Cell(
                text=number_text(value) + spread_text(value, spreads.get(name, {}).get(metric)),
                best=name in first, number=True, value=value,
            )
            for name, value in of_metric.items()
        )  # fmt: skip
    return found


def spread_text(value: float | None, spread: float | None) -> str:
    """`` ± 0.0012``; nothing without a spread, and ``± 0`` for one that is only rounding."""
    if value is None or spread is None:
        return ""
    return f" ± {'0' if spread <= _ROUNDING * abs(value) else number_text(spread, 2)}"


def leaderboard(found: Results, intervals: Mapping[str, Interval]) -> Table:
    """The first table of the page: the models by their value on the test rows, and what each took."""
    metric = found.comparison.metric
    title = metric_title(metric)
    scored = metric_cells(found.models, averaged=True).get(metric, ())
    value_of = dict(zip((model.name for model in found.models), scored, strict=False))
    hints = dict(_HINTS)
    if any(model.averaged for model in found.models):
        hints[title] = "Of the averaged predictions of a model's trials, on the test rows."
    return table_of(
        [one for one in ranked(metric, entries(found, intervals=intervals)) if one.model.only is None],
        {
            "model": lambda one: Cell(text=one.name, hint=one.made_of),
            title: lambda one: value_of.get(one.name, number_cell(None)),
            "95 % interval": lambda one: interval_cell(*one.ci95),
            "mean of trials": lambda one: _over_trials(one.model, metric),
            "fit": lambda one: seconds_cell(one.fit_s),
            "predict": lambda one: seconds_cell(one.predict_s),
            "device time": lambda one: seconds_cell(one.used_s),
            "cost": lambda one: number_cell(one.cost),
            "trained": lambda one: one.trained or DASH,
            "status": lambda one: one.model.status.replace("done", DASH),
        },
        hints=hints,
        best_of="column",
    ).thin()


_HINTS = {
    "95 % interval": "About other rows like these, with the same fitted models.",
    "mean of trials": "The mean over a model's trials, and their standard deviation.",
    "fit": "The mean time to train one trial.",
    "predict": "The mean time of one trial to predict the validation and test rows.",
    "device time": "The training and predicting of all trials, times the devices of each.",
    "cost": "The device time at cost.price_per_hour.",
    "trained": "Trees or epochs of the longest trial.",
}


def _over_trials(model: ModelResult, metric: str) -> Cell:
    """Of a single trial this would only repeat its value."""
    value, spread = model.metrics.test.get(metric), model.std.test.get(metric)
    if model.averaged is None and spread is None:
        return number_cell(None)
    return number_cell(value, number_text(value) + spread_text(value, spread))


def layers(found: Results) -> Table:
    """What the mean over the trainings of the leading model gained, and then the blend; empty with less."""
    metric = found.comparison.metric
    alone = [one for one in ranked(metric, entries(found), "valid") if one.model.weights is None]
    blend = [one for one in found.models if one.weights and not one.only]
    if not alone or len(alone[0].trials) < 2:
        return Table(columns=(), rows=())
    first = alone[0]
    steps = [
        (f"{first.name}, a single training", first.model.metrics),
        (f"the mean of its {len(first.trials)} trainings", first.model.averaged or first.model.metrics),
        *(("the blend with other models", one.metrics) for one in blend),
    ]

    def value(place: int, split: Split) -> float | None:
        return steps[place][1].of(split).get(metric) if place >= 0 else None

    def gain(place: int, split: Split) -> Cell:
        before, after = value(place - 1, split), value(place, split)
        if before is None or after is None:
            return number_cell(None)
        better = score(metric, after) - score(metric, before)
        return number_cell(better, signed(better, None))

    title = metric_title(metric)
    return table_of(
        range(len(steps)),
        {
            "layer": lambda place: steps[place][0],
            f"{title}, valid": lambda place: number_cell(value(place, "valid")),
            "gain, valid": lambda place: gain(place, "valid"),
            f"{title}, test": lambda place: number_cell(value(place, "test")),
            "gain, test": lambda place: gain(place, "test"),
        },
    )


def all_metrics(found: Results, split: Split = "test") -> Table:
    """What the page, the terminal and a notebook show of all models: means over their trials.

    Metrics down and models across; many models stand below each other, the best first.
    """
    metric, of = found.comparison.metric, entries(found)
    if not (across := len(of) <= MOST_ACROSS):
        of = ranked(metric, of, split)
    models = [one.model for one in of]
    rows: list[tuple[str, tuple[Cell, ...]]] = []
    for name, row in metric_cells(models, split).items():
        heading = f"{metric_title(name)} {'↑' if greater_is_better(name) else '↓'}"
        rows.append((heading, row))
        if split == "test" and name == metric and any(model.averaged for model in models):
            rows.append((f"{heading}, trials averaged", metric_cells(models, split, averaged=True)[name]))
    if split == "test" and rows:
        rows.append(("mean fit time", tuple(seconds_cell(one.fit_s) for one in of)))
        if any(one.trained for one in of):
            rows.append(("trained", tuple(Cell(text=one.trained or DASH, number=True) for one in of)))
    first, names = f"{split} split", [one.name for one in of]
    if across:
        return Table(columns=(first, *names), rows=tuple((Cell(text=head), *row) for head, row in rows))
    lines = zip(cells(*names), *(row for _, row in rows), strict=True)
    return Table(columns=(first, *(head for head, _ in rows)), rows=tuple(lines), best_of="column")


def decisions(found: Results) -> Table:
    """What the run's rule of decisions makes of each model on the test rows, and the most probable class."""

    def difference(one: DecisionResult) -> Cell:
        low, high = one.ci95
        width = None if low is None or high is None else high - low
        value = None if one.value is None or one.plain is None else one.value - one.plain
        return number_cell(value, signed(value, width))

    made = [(model, model.decision) for model in found.models if model.decision and not model.only]
    goal = made[0][1].goal if made else ""
    return table_of(
        made,
        {
            "decisions": lambda pair: pair[0].name,
            "rule": lambda pair: pair[1].rule,
            "threshold": lambda pair: number_cell(
                pair[1].threshold, lambda least: f"{pair[1].positive} from {number_text(least)}"
            ),
            f"{goal}, test": lambda pair: number_cell(pair[1].value),
            f"{goal} by the most probable class": lambda pair: number_cell(pair[1].plain),
            "difference": lambda pair: difference(pair[1]),
            "95 % interval": lambda pair: number_cell(pair[1].ci95[0], signed_interval(*pair[1].ci95)),
        },
    ).thin()


def intervals(found: Results) -> Table:
    """How often intervals or sets of each model hold the truth on the test rows, and how wide they are."""
    made = [(model, model.intervals) for model in found.models if model.intervals and not model.only]
    what = "sets" if found.data.classes else "intervals"
    return table_of(
        made,
        {
            what: lambda pair: pair[0].name,
            "asked": lambda pair: number_cell(pair[1].fitted.coverage, percent_text),
            "hold the truth, test": lambda pair: number_cell(pair[1].test.coverage, percent_text),
            "95 % interval": lambda pair: percent_interval(pair[1].test),
            _width(found): lambda pair: number_cell(pair[1].test.width, three_digits),
            "empty": lambda pair: number_cell(pair[1].empty, percent_text),
        },
    ).thin()


def short_groups(found: Results, model: str | None) -> Table:
    """The groups of test rows in which intervals or sets of `model` hold the truth less often than asked."""
    own = next((one.intervals for one in found.models if one.name == model), None)
    return table_of(
        own.short if own else (),
        {
            "rows with": lambda one: one.name,
            "rows": lambda one: whole_cell(one.rows),
            f"{model} holds the truth": lambda one: number_cell(one.coverage, percent_text),
            "interval": percent_interval,
            _width(found): lambda one: number_cell(one.width, three_digits),
        },
    )


def checks(found: Results) -> Table:
    """The named checks of the run, the failed ones first."""
    return table_of(
        sorted(found.checks, key=lambda one: one.status != "failed"),
        {
            "check": lambda one: one.name.replace("_", " "),
            "status": lambda one: one.status,
            "number": lambda one: number_cell(one.value, three_digits),
            "bound": lambda one: number_cell(one.bound, three_digits),
            "of what": lambda one: capital(one.evidence).rstrip("."),
            "how to reduce the risk": lambda one: f"{HOW_TO}#{one.page}",
        },
    )


def by_groups(found: Results, model: str | None) -> list[tuple[str, Table]]:
    """By each column that was asked for: the metrics of `model` in its groups of test rows, and the gaps."""
    own = next((one.groups for one in found.models if one.name == model), ())
    return [(one.column, _of_groups(one)) for one in own if one.groups]


def _of_groups(found: ColumnGroups) -> Table:
    def shown(metric: str, row: tuple[str, int | None, Mapping[str, Estimate]]) -> Cell:
        one = row[2].get(metric)
        if one is None or one.value is None:
            return number_cell(None)
        low, high = (number_text(end, 3) for end in one.ci95)
        return number_cell(one.value, f"{number_text(one.value, 3)} ({low} to {high})")

    rows = [(one.name, one.rows, one.metrics) for one in found.groups]
    return table_of(
        [*rows, *([("gap", None, found.gaps)] if found.gaps else [])],
        {
            "rows with": lambda row: row[0],
            "rows": lambda row: whole_cell(row[1]),
            **{metric_title(metric): partial(shown, metric) for metric in found.groups[0].metrics},
        },
    )


def _width(found: Results) -> str:
    return "classes in a set" if found.data.classes else f"mean width, {found.data.target}"


def percent_text(share: float) -> str:
    return f"{100 * share:.1f} %"


def percent_interval(one: Coverage) -> Cell:
    low, high = (100 * end for end in one.ci95)
    return number_cell(low, f"{low:.1f} to {high:.1f} %")


def given(found: Results) -> list[tuple[str, str]]:
    """What each model was given, in one line: its trials, its training and how it ended, and its time."""
    lines = []
    for one in entries(found):
        if not one.trials or one.model.weights:
            continue
        parts = [one.made_of, one.trained, _how_it_ended(one.trials)]
        if settings := sum(trial.search.tried for trial in one.trials if trial.search):
            parts.append(f"{counted(settings, 'setting')} tried")
        parts.append(f"{seconds_text(sum(trial.fit_s for trial in one.trials))} of training")
        lines.append((one.name, "; ".join(filter(None, parts))))
    return lines


def _how_it_ended(own: Sequence[DoneTrial]) -> str:
    if any(trial.out_of_time for trial in own):
        return "the time limit ended it"
    if any(trial.still_improving for trial in own):
        return "still improving at its limit"
    known = [(trial.steps, trial.most_steps) for trial in own if trial.steps and trial.most_steps]
    return "stopped when it gained no more" if known and all(a < b for a, b in known) else ""
