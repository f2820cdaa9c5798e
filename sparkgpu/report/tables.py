"""The tables of the report, as text ready to be set: rows of cells, no markup.

Everything comes from ``metrics.json``, ``plan.json`` and ``table/schema.json``; a value that is absent or
null shows as a dash, and a column of dashes is left out.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from sparkgpu.plan.plan import Plan
from sparkgpu.score.metrics import greater_is_better
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import counted, gibibytes, metric_title, number_text, seconds_text

DASH = "–"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One value; `best` marks the best of its row, `number` sets it flush right."""

    text: str
    best: bool = False
    number: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A heading for each column, then rows of as many cells."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def marked(self) -> bool:
        """Whether some number is marked, so that the others keep its place free."""
        return any(cell.best and cell.number for row in self.rows for cell in row)


Metrics = dict[str, Any]


def results(metrics: Metrics, split: str = "test") -> Table:
    """Metrics down, models across; mean over a model's trials, with their spread where it was repeated."""
    models = metrics["models"]
    values = [(model.get("metrics") or {}).get(split) or {} for model in models]
    spreads = [(model.get("std") or {}).get(split) or {} for model in models]
    rows = []
    for name in dict.fromkeys(name for of_model in values for name in of_model):
        found = [of_model.get(name) for of_model in values]
        best = _best(name, found)
        arrow = "greater" if greater_is_better(name) else "smaller"
        cells = [Cell(text=f"{metric_title(name)} ({arrow} is better)")]
        for value, spread in zip(found, spreads, strict=True):
            text = number_text(value)
            if value is not None and spread.get(name) is not None:
                text += f" ± {number_text(spread[name], 2)}"
            cells.append(Cell(text=text, best=value is not None and value == best, number=True))
        rows.append(tuple(cells))
    if split == "test" and rows:
        rows += _model_rows(metrics)
    return Table(columns=(f"{split} split", *(model["name"] for model in models)), rows=tuple(rows))


def _model_rows(metrics: Metrics) -> list[tuple[Cell, ...]]:
    """What a model took and is made of, below what it scored."""
    made, took = [], []
    for model in metrics["models"]:
        done = [t for t in metrics["trials"] if t["model"] == model["name"] and t.get("status") == "done"]
        seconds = [trial["fit_s"] for trial in done if trial.get("fit_s") is not None]
        took.append(seconds_text(sum(seconds) / len(seconds)) if seconds else DASH)
        weights = model.get("weights") or {}
        parts = " + ".join(f"{number_text(weight, 2)} {name}" for name, weight in weights.items())
        made.append(
            parts or (f"{model['engine']}, " if model.get("engine") else "") + counted(len(done), "trial")
        )
    return [
        (Cell(text="mean fit time"), *(Cell(text=text, number=True) for text in took)),
        (Cell(text="made of"), *(Cell(text=text, number=True) for text in made)),
    ]


def _best(metric: str, values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    if len(present) < 2:
        return None
    return max(present) if greater_is_better(metric) else min(present)


def comparison(metrics: Metrics) -> Table:
    """Each pair of models: the difference, its interval and the verdict."""
    found = metrics.get("comparison") or {}
    rows = []
    for pair in found.get("pairs") or ():
        low, high = pair.get("ci95") or (None, None)
        width = high - low if low is not None and high is not None else None
        interval = DASH if width is None else f"{_signed(low, width)} to {_signed(high, width)}"
        verdict = pair.get("verdict")
        ahead = {"a": pair["a"], "b": pair["b"]}.get(verdict)
        rows.append(
            (
                Cell(text=f"{pair['a']} minus {pair['b']}"),
                Cell(text=_signed(pair.get("difference"), width), number=True),
                Cell(text=interval, number=True),
                Cell(text=f"{ahead} ahead" if ahead else "tie", best=ahead is not None),
                Cell(text=pair.get("sentence") or DASH),
            )
        )
    columns = ("pair", "difference", "95 % interval", "verdict", "in words")
    return Table(columns=columns, rows=tuple(rows))


def _signed(value: float | None, width: float | None) -> str:
    """`value` with as many decimals as give the interval's width two digits: more would be noise."""
    if value is None:
        return DASH
    decimals = 4 if not width else max(0, 1 - math.floor(math.log10(width)))
    return f"{value:+,.{decimals}f}".replace("-", "−")


def trials(metrics: Metrics, metric: str) -> Table:
    """One row for each trial, finished or not."""
    title = metric_title(metric)
    columns = (
        "trial", "engine", "lane", "strategy", "seed", "fold", "status", f"{title}, valid", f"{title}, test",
        "best step", "fit", "predict", "rows/s", "host memory", "device memory",
    )  # fmt: skip
    rows = []
    for trial in metrics["trials"]:
        scores = trial.get("metrics") or {}
        devices = ", ".join(trial.get("devices") or ())
        rows.append(
            (
                Cell(text=trial["name"]),
                Cell(text=trial.get("engine") or DASH),
                Cell(
                    text=f"{trial['lane']}, {devices}" if trial.get("lane") is not None else devices or DASH
                ),
                Cell(text=trial.get("strategy") or DASH),
                _whole(trial.get("seed"), plain=True),
                _whole(trial.get("fold")),
                Cell(text=trial.get("status") or DASH),
                *(_number((scores.get(split) or {}).get(metric)) for split in ("valid", "test")),
                _whole(trial.get("best_iteration")),
                _seconds(trial.get("fit_s")),
                _seconds(trial.get("predict_s")),
                _number(trial.get("train_rows_per_s")),
                _bytes(trial.get("peak_host_bytes")),
                _bytes(trial.get("peak_device_bytes")),
            )
        )
    return _without_idle_columns(columns, rows)


def timings(metrics: Metrics) -> Table:
    """Phases down, lanes and branches across, in the order they were met."""
    phases: dict[str, dict[str, float]] = metrics.get("phases_s") or {}
    places = [place for place, of_place in phases.items() if of_place]
    names = dict.fromkeys(name for place in places for name in phases[place])
    rows = [(Cell(text=name), *(_seconds(phases[place].get(name)) for place in places)) for name in names]
    if rows:
        sums = (_seconds(sum(phases[place].values())) for place in places)
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
    return Table(columns=("feature", "kind", "levels"), rows=rows)


def lanes(plan: Plan) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            _whole(lane.index),
            Cell(text=lane.device),
            Cell(text=lane.device_name),
            _whole(lane.tree_threads),
            _whole(lane.neural_threads),
            _bytes(lane.heap_bytes or None),  # of executors they are Spark's affair
            _whole(lane.port_base or None, plain=True),
        )
        for lane in plan.lanes
    ]
    columns = ("lane", "device", "name", "threads, trees", "threads, neural", "Java heap", "first port")
    return _without_idle_columns(columns, rows)


def proofs(metrics: Metrics) -> Table:
    """What shows on which device each trial ran, as its engine recorded it."""
    rows = [
        (
            Cell(text=trial["name"]),
            Cell(text=key),
            Cell(text=_evidence(value)),
        )
        for trial in metrics["trials"]
        for key, value in (trial.get("device_proof") or {}).items()
        if value not in (None, "") and key != "ranks"  # those are in metrics.json
    ]
    return Table(columns=("trial", "evidence", "value"), rows=tuple(rows))


def _evidence(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def failures(metrics: Metrics) -> Table:
    rows = [
        (Cell(text=trial["name"]), Cell(text=trial.get("error") or "no reason was recorded"))
        for trial in metrics["trials"]
        if trial.get("status") != "done"
    ]
    return Table(columns=("trial that failed", "reason"), rows=tuple(rows))


def metrics_csv(metrics: Metrics) -> str:
    """``metrics.csv``: one row per model, and per trial, of each split and metric; numbers in full."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("model", "trial", "split", "metric", "value", "std"))
    for entry in (*metrics["models"], *metrics["trials"]):
        is_trial = "model" in entry
        names = (entry["model"], entry["name"]) if is_trial else (entry["name"], "")
        for split, values in (entry.get("metrics") or {}).items():
            spread = {} if is_trial else (entry.get("std") or {}).get(split) or {}
            for metric, value in (values or {}).items():
                writer.writerow((*names, split, metric, value, spread.get(metric)))
    return text.getvalue()


def _without_idle_columns(columns: Sequence[str], rows: list[tuple[Cell, ...]]) -> Table:
    """Leave out what says nothing: columns of dashes, of finished trials, of single devices."""
    idle = {DASH, "done", "single"}
    kept = [i for i in range(len(columns)) if len(found := {row[i].text for row in rows}) > 1 or found - idle]
    return Table(
        columns=tuple(columns[i] for i in kept), rows=tuple(tuple(row[i] for i in kept) for row in rows)
    )


def _number(value: float | None) -> Cell:
    return Cell(text=number_text(value), number=True)


def _whole(value: int | None, *, plain: bool = False) -> Cell:
    """A count, or, when `plain`, a name made of digits."""
    return Cell(text=DASH if value is None else str(value) if plain else f"{value:,}", number=True)


def _seconds(value: float | None) -> Cell:
    return Cell(text=DASH if value is None else seconds_text(value), number=True)


def _bytes(value: int | None) -> Cell:
    return Cell(text=DASH if value is None else gibibytes(value), number=True)
