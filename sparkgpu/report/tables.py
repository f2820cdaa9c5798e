"""The tables of the report as rows of text cells, without markup.

All values come from ``metrics.json``, ``plan.json`` and ``table/schema.json``. An absent or null value shows
as a dash, and a column of dashes is left out.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Literal

from sparkgpu.plan.plan import Plan
from sparkgpu.rundir.results import DoneTrial, PairResult, Results, TrialResult
from sparkgpu.score.metrics import greater_is_better
from sparkgpu.score.standings import averaged, standings, training
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import counted, gibibytes, metric_title, number_text, seconds_text

DASH = "–"
_ROUNDING = 1e-9  # relative
_MOST_ACROSS = 4  # more models than these stand below each other


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One value; `best` marks the best of its row, `number` aligns it to the right.

    `value` is what a column is sorted by, where that is not the text; `hint` explains the text.
    """

    text: str
    best: bool = False
    number: bool = False
    value: float | None = None
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A heading for each column, and rows with one cell for each; a mark is for the best of a `best_of`.

    The values of a `sortable` table's columns are of one kind. `hints` explain headings.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    best_of: str = "row"
    sortable: bool = False
    hints: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def marked(self) -> frozenset[int]:
        """The columns in which some number has a mark, so that the others there leave room for it."""
        return frozenset(
            place for row in self.rows for place, cell in enumerate(row) if cell.best and cell.number
        )


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
            _whole(trial.seed, plain=True),
            _whole(trial.fold),
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
        _whole(trial.best_iteration),
        seconds_cell(trial.fit_s),
        seconds_cell(trial.predict_s),
        number_cell(trial.train_rows_per_s),
        _bytes(trial.peak_host_bytes),
        _bytes(trial.peak_device_bytes),
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
        (Cell(text=name), _whole(rows), Cell(text=f"{100 * rows / total:.1f} %", number=True))
        for name, rows in schema.splits.items()
    )
    return Table(columns=("split", "rows", "share"), rows=tuple(rows))


def dropped(schema: TableSchema) -> Table:
    rows = tuple((Cell(text=item.column), Cell(text=item.reason)) for item in schema.dropped)
    return Table(columns=("column left out", "reason"), rows=rows)


def features(schema: TableSchema) -> Table:
    rows = tuple(
        (Cell(text=item.title), Cell(text=item.kind), _whole(len(item.levels) or None))
        for item in schema.features
    )
    return Table(columns=("feature", "kind", "levels"), rows=rows, sortable=True)


def lanes(plan: Plan) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            _whole(lane.index),
            Cell(text=lane.device),
            Cell(text=lane.device_name),
            _whole(lane.tree_threads),
            _whole(lane.neural_threads),
            _bytes(lane.heap_bytes or None),  # for executors, Spark decides it
            _whole(lane.port_base or None, plain=True),
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


def without_idle_columns(
    columns: Sequence[str],
    rows: Sequence[tuple[Cell, ...]],
    *,
    hints: Mapping[str, str] | None = None,
    best_of: str = "row",
) -> Table:
    """Leave out columns without information: only dashes, only finished trials, only single devices."""
    idle = {DASH, "done", "single"}
    kept = [i for i in range(len(columns)) if len(found := {row[i].text for row in rows}) > 1 or found - idle]
    return Table(
        columns=tuple(columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        best_of=best_of,
        sortable=True,
        hints=hints or {},
    )


def number_cell(value: float | None) -> Cell:
    return Cell(text=number_text(value), number=True, value=value)


def _whole(value: int | None, *, plain: bool = False) -> Cell:
    """A count or, with `plain`, a name made of digits."""
    text = DASH if value is None else str(value) if plain else f"{value:,}"
    return Cell(text=text, number=True, value=value)


def seconds_cell(value: float | None) -> Cell:
    return Cell(text=DASH if value is None else seconds_text(value), number=True, value=value)


def _bytes(value: int | None) -> Cell:
    return Cell(text=DASH if value is None else gibibytes(value), number=True, value=value)
