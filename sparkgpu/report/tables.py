"""The tables of the report as rows of text cells, without markup.

All values come from ``metrics.json``, ``plan.json`` and ``table/schema.json``.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Literal

from sparkgpu.plan.plan import Plan
from sparkgpu.report.cells import (
    DASH,
    Cell,
    Table,
    bytes_cell,
    number_cell,
    seconds_cell,
    whole_cell,
    without_idle_columns,
)
from sparkgpu.rundir.results import DoneTrial, PairResult, Results, TrialResult
from sparkgpu.score.metrics import greater_is_better
from sparkgpu.score.standings import averaged, standings, training
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import counted, metric_title, number_text, seconds_text

_ROUNDING = 1e-9  # relative
_MOST_ACROSS = 4  # more models than these stand below each other


def results(found: Results, split: Literal["valid", "test"] = "test") -> Table:
    """Metrics down, models across: the mean over a model's trials, with their spread if there are several."""
    rows = []
    for metric, of_metric in standings(found.models, split).items():
        arrow = "greater" if greater_is_better(metric) else "smaller"
        cells = [Cell(text=f"{metric_title(metric)} ({arrow} is better)")]
        for standing in of_metric:
            text = number_text(standing.value) + spread_text(standing.value, standing.spread)
            cells.append(Cell(text=text, best=standing.is_best, number=True))
        rows.append(tuple(cells))
        if split == "test" and metric == found.comparison.metric and (of_averages := averaged(found)):
            values = (
                Cell(text=number_text(standing.value), best=standing.is_best, number=True)
                for standing in of_averages
            )
            rows.append((Cell(text=f"{metric_title(metric)} of the trials' averaged predictions"), *values))
    names = tuple(model.name for model in found.models)
    across = len(names) <= _MOST_ACROSS
    if split == "test" and rows:
        rows += _model_rows(found)[: None if across else -1]  # the parts of a blend have a table of their own
    if across:
        return Table(columns=(f"{split} split", *names), rows=tuple(rows))
    headings = (row[0].text for row in rows)
    titles = (
        heading.replace(" (greater is better)", " ↑").replace(" (smaller is better)", " ↓")
        for heading in headings
    )
    lines = ((Cell(text=name), *(row[place] for row in rows)) for place, name in enumerate(names, start=1))
    return Table(columns=(f"{split} split", *titles), rows=tuple(lines), best_of="column")


def _model_rows(found: Results) -> list[tuple[Cell, ...]]:
    """The time and the parts of a model, below its scores."""
    made, took = [], []
    for model in found.models:
        done = found.done(model.name)
        took.append(seconds_text(sum(trial.fit_s for trial in done) / len(done)) if done else DASH)
        if model.only:
            made.append(f"{model.only} alone")
        elif model.weights:
            made.append(
                " + ".join(
                    f"{number_text(share, 2)} {name}" for name, share in model.weights.items() if share
                )
            )
        else:
            made.append((f"{model.engine}, " if model.engine else "") + counted(len(done), "trial"))
    trained = [training(found, model.name) or DASH for model in found.models]
    return [
        (Cell(text="mean fit time"), *(Cell(text=text, number=True) for text in took)),
        (Cell(text="trained"), *(Cell(text=text, number=True) for text in trained)),
        (Cell(text="made of"), *(Cell(text=text, number=True) for text in made)),
    ]


def comparison(found: Results) -> Table:
    """Each pair of models: the difference, its interval and the verdict; without a blend of one."""
    again = {model.name for model in found.models if model.only}
    rows = []
    for pair in found.comparison.pairs:
        if pair.a in again or pair.b in again:
            continue
        low, high = pair.ci95
        width = high - low if low is not None and high is not None else None
        interval = DASH if width is None else f"{signed(low, width)} to {signed(high, width)}"
        ahead = {"a": pair.a, "b": pair.b}.get(pair.verdict)
        rows.append(
            (
                Cell(text=f"{pair.a} minus {pair.b}"),
                Cell(text=signed(pair.difference, width), number=True, value=pair.difference),
                Cell(text=interval, number=True, value=low),
                Cell(text=f"{ahead} ahead" if ahead else "tie", best=ahead is not None),
                Cell(text=reason(pair) or DASH),
            )
        )
    columns = ("pair", "difference", "95 % interval", "verdict", "because")
    return without_idle_columns(columns, rows)


def reason(pair: PairResult) -> str:
    """Why a pair has no interval or no difference, in words; else empty."""
    return pair.sentence.partition(": ")[2].partition(": ")[2]


def spread_text(value: float | None, spread: float | None) -> str:
    """`` ± 0.0012``; nothing without a spread, and ``± 0`` for one that is only rounding."""
    if value is None or spread is None:
        return ""
    return f" ± {'0' if spread <= _ROUNDING * abs(value) else number_text(spread, 2)}"


def signed(value: float | None, width: float | None) -> str:
    """`value` with the decimals that show two digits of the interval's width: more would be noise."""
    if value is None:
        return DASH
    decimals = 4 if not width else max(0, 1 - math.floor(math.log10(width)))
    return f"{value:+z,.{decimals}f}".replace("-", "−")


def trials(found: Results, metric: str) -> Table:
    """One row for each trial, finished or not."""
    title = metric_title(metric)
    columns = (
        "trial", "engine", "lane", "strategy", "seed", "fold", "status", f"{title}, valid", f"{title}, test",
        "best step", "fit", "predict", "rows/s", "host memory", "device memory",
    )  # fmt: skip
    rows = [
        (
            Cell(text=trial.name),
            Cell(text=trial.engine),
            Cell(text=f"{trial.lane}, {devices_text(trial.devices)}"),
            Cell(text=strategy_text(trial)),
            whole_cell(trial.seed, plain=True),
            whole_cell(trial.fold),
            Cell(text=trial.status),
            number_cell(trial.metrics.valid.get(metric)),
            number_cell(trial.metrics.test.get(metric)),
            *(_measured(trial) if isinstance(trial, DoneTrial) else 6 * (Cell(text=DASH, number=True),)),
        )
        for trial in found.trials
    ]
    return without_idle_columns(columns, rows)


def devices_text(devices: Sequence[str]) -> str:
    """``2 × cpu`` for devices of one name."""
    counts = Counter(devices).items()
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts)


def strategy_text(trial: TrialResult) -> str:
    """The strategy; trees over several executors have none, and are one model of all of them."""
    return "shared" if trial.strategy == "single" and len(trial.devices) > 1 else trial.strategy


def _measured(trial: DoneTrial) -> tuple[Cell, ...]:
    return (
        whole_cell(trial.best_iteration),
        seconds_cell(trial.fit_s),
        seconds_cell(trial.predict_s),
        number_cell(trial.train_rows_per_s),
        bytes_cell(trial.peak_host_bytes),
        bytes_cell(trial.peak_device_bytes),
    )


def timings(phases: Mapping[str, Mapping[str, float]]) -> Table:
    """Phases down, lanes and branches across, in the order of appearance."""
    places = [place for place, of_place in phases.items() if of_place]
    names = dict.fromkeys(name for place in places for name in phases[place])
    rows = [(Cell(text=name), *(seconds_cell(phases[place].get(name)) for place in places)) for name in names]
    if rows:
        sums = (seconds_cell(sum(phases[place].values())) for place in places)
        rows.append((Cell(text="sum", best=True), *sums))
    return Table(columns=("phase", *places), rows=tuple(rows))


def splits(schema: TableSchema) -> Table:
    total = sum(schema.splits.values()) or 1
    rows = (
        (Cell(text=name), whole_cell(rows), Cell(text=f"{100 * rows / total:.1f} %", number=True))
        for name, rows in schema.splits.items()
    )
    return Table(columns=("split", "rows", "share"), rows=tuple(rows))


def dropped(schema: TableSchema) -> Table:
    rows = tuple((Cell(text=item.column), Cell(text=item.reason)) for item in schema.dropped)
    return Table(columns=("column left out", "reason"), rows=rows)


def features(schema: TableSchema) -> Table:
    rows = tuple(
        (Cell(text=item.title), Cell(text=item.kind), whole_cell(len(item.levels) or None))
        for item in schema.features
    )
    return Table(columns=("feature", "kind", "levels"), rows=rows, sortable=True)


def lanes(plan: Plan) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            whole_cell(lane.index),
            Cell(text=lane.device),
            Cell(text=lane.device_name),
            whole_cell(lane.tree_threads),
            whole_cell(lane.neural_threads),
            bytes_cell(lane.heap_bytes or None),  # for executors, Spark decides it
            whole_cell(lane.port_base or None, plain=True),
        )
        for lane in plan.lanes
    ]
    columns = ("lane", "device", "name", "threads, trees", "threads, neural", "Java heap", "first port")
    return without_idle_columns(columns, rows)


def proofs(found: Results) -> Table:
    """The proof of each trial's device, as its engine recorded it."""
    rows = [
        (Cell(text=trial.name), Cell(text=key), Cell(text=_evidence(value)))
        for trial in found.done()
        for key, value in trial.device_proof.items()
        if value not in (None, "") and key != "ranks"  # metrics.json has the ranks
    ]
    return Table(columns=("trial", "evidence", "value"), rows=tuple(rows))


def _evidence(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def failures(found: Results) -> Table:
    rows = [(Cell(text=trial.name), Cell(text=trial.error)) for trial in found.failed]
    return Table(columns=("trial that failed", "reason"), rows=tuple(rows))


def metrics_csv(found: Results) -> str:
    """``metrics.csv``: one row for each model or trial, split and metric, with unrounded numbers."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("model", "trial", "split", "metric", "value", "std"))
    for model in found.models:
        for metric, value in model.metrics.valid.items():
            writer.writerow((model.name, "", "valid", metric, value, None))
        for metric, value in model.metrics.test.items():
            writer.writerow((model.name, "", "test", metric, value, model.std.test.get(metric)))
    for trial in found.trials:
        for split, values in (("valid", trial.metrics.valid), ("test", trial.metrics.test)):
            for metric, value in values.items():
                writer.writerow((trial.model, trial.name, split, metric, value, None))
    return text.getvalue()
