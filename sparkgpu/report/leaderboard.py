"""The models of a run, the best first, with what each of them took: the first table of the page.

A model's value is that of its trials' averaged predictions, which is what predicts and what is compared. Its
times are means over its trials, its device time and cost are sums; a blend takes what its members take.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean

from sparkgpu.report.cells import DASH, Cell, Table, number_cell, seconds_cell, without_idle_columns
from sparkgpu.report.tables import spread_text
from sparkgpu.rundir.results import DoneTrial, ModelResult, Results
from sparkgpu.score.metrics import best, score
from sparkgpu.score.standings import training
from sparkgpu.words import counted, gibibytes, listed, metric_title, number_text

Interval = tuple[float, float] | tuple[None, None]


def ranked(found: Results) -> list[ModelResult]:
    """The models with their best value on the test rows first; those without a value last.

    A blend that is one model again is left out.
    """
    metric = found.comparison.metric

    def place(model: ModelResult) -> float:
        value = value_of(model, metric)
        return math.inf if value is None else -score(metric, value)

    return sorted((model for model in found.models if model.only is None), key=place)


def value_of(model: ModelResult, metric: str) -> float | None:
    """The metric of the model's averaged predictions on the test rows."""
    return (model.averaged or model.metrics).test.get(metric)


def leaderboard(found: Results, intervals: Mapping[str, Interval]) -> Table:
    """One row for each model that was planned."""
    metric = found.comparison.metric
    title = metric_title(metric)
    several = any(model.averaged for model in found.models)
    values = {model.name: value_of(model, metric) for model in found.models}
    first = best(metric, values) if sum(value is not None for value in values.values()) > 1 else ()
    rate = None if found.cost.price is None else found.cost.price / (found.cost.device_hours or math.inf)
    rows = [
        (
            Cell(text=model.name, hint=_made_of(found, model)),
            Cell(
                text=number_text(values[model.name]), number=True, best=model.name in first,
                value=values[model.name],
            ),
            _interval(intervals.get(model.name)),
            _over_trials(model, metric),
            *_taken(found, model, rate),
            Cell(text=training(found, model.name) or DASH),
            Cell(text=model.status if model.status != "done" else DASH),
        )
        for model in ranked(found)
        if model.status != "left out"
    ]  # fmt: skip
    trials = "mean of trials"
    columns = (
        "model", title, "95 % interval", trials, "fit", "predict", "predicts rows/s", "devices", "memory",
        "device memory", "device time", "cost", "trained", "status",
    )  # fmt: skip
    hints = {
        title: "Of the averaged predictions of a model's trials, on the test rows." if several else "",
        "95 % interval": "About other rows like these, with the same fitted models.",
        trials: "The mean over a model's trials, and their standard deviation.",
        "fit": "The mean time to train one trial.",
        "predict": "The mean time of one trial to predict the validation and test rows.",
        "predicts rows/s": "The validation and test rows, by the time to predict them with all trials.",
        "memory": "The most that one trial's process took of the machine's memory.",
        "device memory": "The most that one trial took of its device's memory.",
        "device time": "The training and predicting of all trials, times the devices of each.",
        "cost": "The device time at cost.price_per_hour.",
        "trained": "Trees or epochs of the longest trial; plus: it reached its limit and still improved.",
    }
    hints = {name: hint for name, hint in hints.items() if hint}
    return without_idle_columns(columns, rows, hints=hints, best_of="column")


def _interval(found: Interval | None) -> Cell:
    low, high = found or (None, None)
    if low is None or high is None:
        return Cell(text=DASH, number=True)
    return Cell(text=f"{number_text(low)} to {number_text(high)}", number=True, value=low)


def _over_trials(model: ModelResult, metric: str) -> Cell:
    """Of a single trial this would only repeat its value."""
    value, spread = model.metrics.test.get(metric), model.std.test.get(metric)
    if model.averaged is None and spread is None:
        return Cell(text=DASH, number=True)
    return Cell(text=number_text(value) + spread_text(value, spread), number=True, value=value)


def _taken(found: Results, model: ModelResult, rate: float | None) -> tuple[Cell, ...]:
    members = [name for name, share in (model.weights or {model.name: 1.0}).items() if share]
    own = [trial for name in members for trial in found.done(name)]
    if not own:
        return 8 * (Cell(text=DASH, number=True),)
    is_blend = model.weights is not None
    predict_s = sum(trial.predict_s for trial in own)
    rows = sum(found.data.splits.get(split, 0) for split in ("valid", "test"))
    used_s = sum((trial.fit_s + trial.predict_s) * len(trial.devices) for trial in own)
    devices = sorted({device for trial in own for device in trial.devices})
    host = max(trial.peak_host_bytes for trial in own)
    on_device = [trial.peak_device_bytes for trial in own if trial.peak_device_bytes]
    return (
        seconds_cell(None if is_blend else mean(trial.fit_s for trial in own)),
        seconds_cell(None if is_blend else mean(trial.predict_s for trial in own)),
        number_cell(None) if not predict_s else _whole(rows / predict_s),
        Cell(text=DASH if devices == ["cpu"] else _short(devices)),
        Cell(text=gibibytes(host), number=True, value=host) if host else number_cell(None),
        Cell(text=gibibytes(max(on_device)), number=True, value=max(on_device))
        if on_device
        else number_cell(None),
        seconds_cell(used_s),
        number_cell(None if rate is None else rate * used_s / 3600),
    )


def _whole(value: float) -> Cell:
    return Cell(text=f"{value:,.0f}", number=True, value=value)


def _short(devices: Sequence[str]) -> str:
    return listed(devices) if len(devices) < 3 else f"{len(devices)} devices"


def _made_of(found: Results, model: ModelResult) -> str:
    if model.weights:
        return " + ".join(f"{number_text(share, 2)} {name}" for name, share in model.weights.items() if share)
    return ", ".join(
        text for text in (model.engine or "", counted(len(found.done(model.name)), "trial")) if text
    )


def given(found: Results) -> list[tuple[str, str]]:
    """What each model was given, in one line: its trials, its training and how it ended, and its time."""
    lines = []
    for model in found.models:
        own = found.done(model.name)
        if not own or model.weights:
            continue
        parts = [f"{model.engine}, {counted(len(own), 'trial')}"]
        if trained := training(found, model.name):
            parts.append(trained.removesuffix("+"))
        parts += _how_it_ended(own)
        if settings := sum(trial.search.tried for trial in own if trial.search):
            parts.append(f"{counted(settings, 'setting')} tried")
        parts.append(f"{seconds_cell(sum(trial.fit_s for trial in own)).text} of training")
        lines.append((model.name, "; ".join(parts)))
    return lines


def _how_it_ended(own: Sequence[DoneTrial]) -> list[str]:
    if any(trial.out_of_time for trial in own):
        return ["the time limit ended it"]
    if any(trial.still_improving for trial in own):
        return ["still improving at its limit"]
    known = [trial for trial in own if trial.steps and trial.most_steps]
    return (
        ["stopped when it gained no more"]
        if known and all((trial.steps or 0) < (trial.most_steps or 0) for trial in known)
        else []
    )
