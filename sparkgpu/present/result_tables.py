"""The tables of a run's results but its leaderboard, and ``metrics.csv``.

All values come from the records of the run: ``metrics.json``, ``plan.json``, ``table/schema.json``, ...
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import NamedTuple

from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.advice import AdviceRecord
from sparkgpu.core.rundir.explanations import ColumnImportance, Explanations, Importance
from sparkgpu.core.rundir.metrics_json import ModelResult, PairResult, Results, SplitMetrics, TrialResult
from sparkgpu.core.words import gibibytes, metric_title, number_text, seconds_text
from sparkgpu.present.table_model import (
    DASH,
    Cell,
    Table,
    bytes_cell,
    cells,
    name_cell,
    number_cell,
    seconds_cell,
    table_of,
    three_digits,
    whole_cell,
)
from sparkgpu.score.metrics import score


class Fact(NamedTuple):
    """A name and a short text; `hint` is the whole of what the text shortens."""

    name: str
    text: str
    hint: str = ""


def taken(found: Results, *, on_cluster: bool = False) -> tuple[Fact, ...]:
    """What a run took; without a text where it is not known."""
    about, cost = found.run, found.cost
    hours = "The wall time of the run times the number of lanes."
    memory = gibibytes(about.peak_rss_bytes) if about.peak_rss_bytes else ""
    return (
        Fact("wall time", about.wall_text),
        Fact("device time", seconds_text(3600 * cost.device_hours), hours),
        Fact("GPU energy", "" if cost.energy_wh is None else f"{number_text(cost.energy_wh)} Wh"),
        Fact("cost", "" if cost.price is None else number_text(cost.price)),
        Fact("peak memory of the driver" if on_cluster else "peak memory", memory),
    )


def signed(value: float | None, width: float | None) -> str:
    """`value` with the decimals that show two digits of the interval's width: more would be noise.

    Up to two more tell it from 0. Without a width, with three digits of its own.
    """
    if value is None:
        return DASH
    size, digits = (width, 2) if width else (abs(value) or 1.0, 3)
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    if value:
        decimals = max(decimals, min(decimals + 2, -math.floor(math.log10(abs(value)))))
    text = f"{value:+z,.{decimals}f}".replace("-", "−")
    return text if text.strip("+0.") else text[1:]


def signed_interval(low: float | None, high: float | None) -> str:
    """Both ends of the interval of a difference, with the decimals that its width gives."""
    if low is None or high is None:
        return DASH
    return f"{signed(low, high - low)} to {signed(high, high - low)}"


def comparison(found: Results) -> Table:
    """Each pair of models: the difference, its interval and the verdict; without a blend of one."""

    def difference(pair: PairResult) -> Cell:
        low, high = pair.ci95
        width = None if low is None or high is None else high - low
        return number_cell(pair.difference, signed(pair.difference, width))

    def verdict(pair: PairResult) -> Cell:
        ahead = {"a": pair.a, "b": pair.b}.get(pair.verdict)
        return Cell(text=f"{ahead} ahead" if ahead else "tie", best=ahead is not None)

    def over_folds(pair: PairResult) -> Cell:
        if (of := pair.over_folds) is None:
            return number_cell(None)
        return number_cell(
            of.difference, f"{signed_interval(*of.ci95)}; {pair.a} ahead in {of.ahead} of {of.folds}"
        )

    return table_of(
        found.pairs,
        {
            "pair": lambda pair: f"{pair.a} minus {pair.b}",
            "difference": difference,
            "95 % interval": lambda pair: number_cell(pair.ci95[0], signed_interval(*pair.ci95)),
            "verdict": verdict,
            "over the folds": over_folds,
            "because": lambda pair: reason(pair) or DASH,
        },
    ).thin()


def reason(pair: PairResult) -> str:
    """Why a pair has no interval or no difference, in words; else empty."""
    return pair.sentence.partition(": ")[2].partition(": ")[2]


def trials(found: Results, metric: str) -> Table:
    """One row for each trial, finished or not."""
    title = metric_title(metric)
    return table_of(
        found.trials,
        {
            "trial": lambda trial: trial.name,
            "engine": lambda trial: trial.engine,
            "lane": lambda trial: f"{trial.lane}, {devices_text(trial.devices)}",
            "strategy": strategy_text,
            "seed": lambda trial: name_cell(trial.seed),
            "fold": lambda trial: whole_cell(trial.fold),
            "status": lambda trial: trial.status,
            f"{title}, valid": lambda trial: number_cell(trial.metrics.valid.get(metric)),
            f"{title}, test": lambda trial: number_cell(trial.metrics.test.get(metric)),
            "best step": lambda trial: whole_cell(getattr(trial, "best_iteration", None)),
            "fit": lambda trial: seconds_cell(getattr(trial, "fit_s", None)),
            "predict": lambda trial: seconds_cell(getattr(trial, "predict_s", None)),
            "rows/s": lambda trial: number_cell(getattr(trial, "train_rows_per_s", None)),
            "host memory": lambda trial: bytes_cell(getattr(trial, "peak_host_bytes", None)),
            "device memory": lambda trial: bytes_cell(getattr(trial, "peak_device_bytes", None)),
        },
    ).thin()


def devices_text(devices: Sequence[str]) -> str:
    """``2 × cpu`` for devices of one name."""
    counts = Counter(devices).items()
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts)


def strategy_text(trial: TrialResult) -> str:
    """The strategy; trees over several executors have none, and are one model of all of them."""
    return "shared" if trial.strategy == "single" and len(trial.devices) > 1 else trial.strategy


def timings(phases: Mapping[str, Mapping[str, float]]) -> Table:
    """Phases down, lanes and branches across, in the order of appearance."""
    places = [place for place, of_place in phases.items() if of_place]
    names = dict.fromkeys(name for place in places for name in phases[place])
    rows = [(Cell(text=name), *(seconds_cell(phases[place].get(name)) for place in places)) for name in names]
    if rows:
        sums = (seconds_cell(sum(phases[place].values())) for place in places)
        rows.append((Cell(text="sum", best=True), *sums))
    return Table(columns=("phase", *places), rows=tuple(rows))


def lanes(plan: Plan) -> Table:
    return table_of(
        plan.lanes,
        {
            "lane": lambda lane: whole_cell(lane.index),
            "device": lambda lane: lane.device,
            "name": lambda lane: lane.device_name,
            "threads, trees": lambda lane: whole_cell(lane.tree_threads),
            "threads, neural": lambda lane: whole_cell(lane.neural_threads),
            "Java heap": lambda lane: bytes_cell(lane.heap_bytes or None),  # for executors, Spark decides it
            "first port": lambda lane: name_cell(lane.port_base or None),
        },
    ).thin()


def failures(found: Results) -> Table:
    return table_of(
        found.failed, {"trial that failed": lambda trial: trial.name, "reason": lambda trial: trial.error}
    )


def metrics_csv(found: Results) -> str:
    """``metrics.csv``: one row for each model or trial, split and metric, with unrounded numbers."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("model", "trial", "split", "metric", "value", "std"))
    spreads = {model.name: model.std.test for model in found.models}
    of: list[tuple[str, str, SplitMetrics]] = [(model.name, "", model.metrics) for model in found.models]
    for model, trial, metrics in (*of, *((trial.model, trial.name, trial.metrics) for trial in found.trials)):
        for split, values in (("valid", metrics.valid), ("test", metrics.test)):
            for metric, value in values.items():
                std = None if trial or split == "valid" else spreads[model].get(metric)
                writer.writerow((model, trial, split, metric, value, std))
    return text.getvalue()


def calibration(found: Results) -> Table:
    """How well each model is calibrated, before and after temperature scaling."""

    def scaled_here(model: ModelResult) -> str:
        if model.weights is None:
            return "yes" if model.calibration and model.calibration.applied else "no"
        members = (one.calibration for one in found.models if model.weights.get(one.name))
        return "its members" if any(one and one.applied for one in members) else "no"

    rows = [
        (
            Cell(text=model.name), number_cell(one.error_before), number_cell(one.error_after),
            number_cell(one.brier_before), number_cell(one.brier_after),
            number_cell(one.temperature, three_digits), Cell(text=scaled_here(model)),
        )
        for model in found.models
        if (one := model.calibration) is not None
    ]  # fmt: skip
    columns = (
        "test split", "calibration error", "after scaling", "Brier score", "after scaling", "temperature",
        "scaled here",
    )  # fmt: skip
    return Table(columns=columns, rows=tuple(rows))


def blend_parts(found: Results) -> Table:
    """The members of the blend: their shares, and what each adds on the validation rows."""
    blend = next((model for model in found.models if model.weights), None)
    if blend is None or blend.only or not blend.gains:
        return Table(columns=(), rows=())
    gains = blend.gains
    return table_of(
        [(name, share) for name, share in (blend.weights or {}).items() if share],
        {
            "member of the blend": lambda part: part[0],
            "weight": lambda part: number_cell(part[1], three_digits),
            f"gain in {metric_title(found.comparison.metric)}, valid": lambda part: number_cell(
                gains.get(part[0]), lambda gain: signed(gain, None)
            ),
        },
    )


def searches(found: Results) -> Table:
    """What each search tried and chose."""
    rows = []
    for trial in found.done():
        one = trial.search
        if one is None:
            continue
        of = f" of {one.asked}, then the time was over" if one.tried < one.asked else ""
        counts = f"{one.tried}{of} ({one.pruned} given up, {one.failed} failed)"
        chosen = ", ".join(f"{key} {_setting(value)}" for key, value in one.setting.items())
        values = (
            number_cell(None if found_score is None else score(one.metric, found_score))
            for found_score in (one.default_score, one.best_score)
        )
        setting = Cell(text="the defaults" if one.best == 0 else chosen)
        rows.append((*cells(trial.name, counts), seconds_cell(one.search_s), *values, setting))
    title = metric_title(found.comparison.metric)
    columns = ("search", "settings", "time", f"defaults, {title}, valid", "chosen", "chosen settings")
    return Table(columns=columns, rows=tuple(rows))


def _setting(value: object) -> str:
    return " × ".join(map(str, value)) if isinstance(value, list) else str(value)


def prediction(advice: AdviceRecord, found: Results) -> Table:
    """What was predicted of the run, beside what it took."""
    devices = [trial.peak_device_bytes for trial in found.done() if trial.peak_device_bytes is not None]
    run, cost = found.run, found.cost
    outcomes: tuple[tuple[str, float | None, float | None, Callable[[float], str]], ...] = (
        ("time to the result", advice.wall_s, run.wall_s, seconds_text),
        ("memory of all processes", advice.peak_rss_bytes, run.peak_rss_bytes, gibibytes),
        ("memory of the network on a GPU", advice.peak_device_bytes, max(devices, default=None), gibibytes),
        ("device-hours", advice.device_hours, cost.device_hours, three_digits),
        ("cost", advice.price, cost.price, three_digits),
    )
    rows = [
        (
            Cell(text=name), number_cell(predicted, text), number_cell(measured, text),
            number_cell(measured / predicted if predicted else None, "{:.2f}".format),
        )
        for name, predicted, measured, text in outcomes
        if predicted is not None and measured is not None
    ]  # fmt: skip
    columns = ("prediction and outcome", "predicted", "measured", "measured over predicted")
    return Table(columns=columns, rows=tuple(rows))


def importances(rows: Sequence[ColumnImportance], models: Sequence[str], decimals: int) -> Table:
    """What columns are worth to each model."""

    def cell(one: Importance | None) -> Cell:
        if one is None:
            return number_cell(None)
        spread = f" ± {one.std:z,.{decimals}f}" if one.std is not None else ""
        return number_cell(one.mean, f"{one.mean:z,.{decimals}f}{spread}")

    lines = [
        (
            Cell(text=f"{row.column}{' ≠' if row.differs else ''}", hint=row.differs or ""),
            *(cell(row.models.get(model)) for model in models),
        )
        for row in rows
    ]
    return Table(columns=("column", *models), rows=tuple(lines), sortable=True)


def decimals_of(found: Explanations) -> int:
    """Three digits of the largest importance, the same for all, so that they compare at a glance."""
    values = [abs(one.mean) for row in found.importances for one in row.models.values()]
    largest = max(values, default=0.0)
    return min(max(2 - math.floor(math.log10(largest)), 0), 8) if largest > 0 else 2
