"""One leaderboard over the models of several runs that were scored on the same test rows.

The reference is the best model on the validation rows, so that its place on the test rows is not the best of
many; every other model is compared with it in pairs, row by row. Limits: it reads the predictions of one run
at a time beside those of the reference. N rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparkgpu.comparison.runs import Compared
from sparkgpu.score.by_model import ModelPredictions, predictions_of_models
from sparkgpu.score.compare import Comparison, compare, interval
from sparkgpu.score.lines import Line, lines_of, ranked
from sparkgpu.score.metrics import score
from sparkgpu.score.rows import FloatArray
from sparkgpu.words import clean, listed, metric_title, number_text

_SEED = 7


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model of a run: its `line`, its `value` on the test rows, and how it compares with the reference.

    `difference` is this model's metric minus the reference's; None for the reference itself and if the
    predictions of either are gone. `standing` says what it means.
    """

    line: Line
    value: float
    ci95: tuple[float, float] | tuple[None, None]
    difference: Comparison | None
    is_reference: bool

    @property
    def name(self) -> str:
        return f"{self.line.model} of {self.line.run}"

    @property
    def standing(self) -> str:
        if self.is_reference:
            return "reference"
        if self.difference is None:
            return "not compared: its predictions are gone"
        if self.difference.ci95[0] is None:
            return f"not told apart: {self.difference.reason}"
        equal = "equal" if self.difference.reason else "tie"
        return {"a": "better", "b": "worse", "tie": equal}[self.difference.verdict]


@dataclass(frozen=True, kw_only=True)
class Board:
    """Entries by their value on the test rows, the best first; `chosen_on` are the rows of the reference."""

    metric: str
    runs: tuple[Compared, ...]
    entries: tuple[Entry, ...]
    chosen_on: Literal["validation", "test"]

    @property
    def title(self) -> str:
        """What was predicted, and the runs."""
        data = self.runs[0].results.data
        names = listed((clean(run.name) for run in self.runs), most=4)
        return f"{clean(data.target)} ({data.task}): {names}"

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        reference = next((entry for entry in self.entries if entry.is_reference), None)
        if reference is None:
            return "No model of these runs finished, so there is nothing to rank."
        value = f"{metric_title(self.metric)} {number_text(reference.value)}"
        text = f"Best on the {self.chosen_on} rows: {clean(reference.name)}, with {value}"
        text += " on the test rows" if self.chosen_on == "validation" else ""
        better = [clean(entry.name) for entry in self.entries if entry.standing == "better"]
        level = [clean(entry.name) for entry in self.entries if entry.standing in ("tie", "equal")]
        parts = [
            f"{words}: {listed(names, most=4)}"
            for words, names in (("better on the test rows", better), ("level with it", level))
            if names
        ]
        if not parts and any(entry.standing == "worse" for entry in self.entries):
            parts.append("all others are behind it")
        return "; ".join((text, *parts)) + "."

    @property
    def note(self) -> str:
        """How the reference was chosen, in one sentence."""
        title = metric_title(self.metric)
        if self.chosen_on == "validation":
            return f"The reference has the best {title} on the validation rows."
        return (
            f"The runs do not share their validation rows, so the reference has the best {title} on the test "
            "rows; the best of many looks a little better there than it is."
        )


def board(runs: Sequence[Compared]) -> Board:
    """The leaderboard of `runs`, which have the same test rows (or are one run)."""
    metric = runs[0].results.comparison.metric
    lines = ranked(metric, (line for run in runs for line in lines_of(run.name, run.results)))
    on_valid = _best_on_valid(metric, runs, lines)
    reference = on_valid or next(iter(lines), None)
    reference_N: FloatArray | None = None
    entries: dict[tuple[str, str], Entry] = {}
    for run in sorted(runs, key=lambda run: reference is None or run.name != reference.run):
        rows = _predictions(run)
        if rows is not None and reference is not None and run.name == reference.run:
            reference_N = rows.values.get(reference.model)
        for line in lines:
            if line.run == run.name:
                entries[line.run, line.model] = _entry(metric, run, rows, line, reference, reference_N)
    return Board(
        metric=metric,
        runs=tuple(runs),
        entries=tuple(entries[line.run, line.model] for line in lines),
        chosen_on="test" if on_valid is None else "validation",
    )


def _entry(
    metric: str,
    run: Compared,
    rows: ModelPredictions | None,
    line: Line,
    reference: Line | None,
    reference_N: FloatArray | None,
) -> Entry:
    ci95: tuple[float, float] | tuple[None, None] = (None, None)
    difference = None
    own = None if rows is None else rows.values.get(line.model)
    if rows is not None and own is not None:
        labels, task = rows.labels, run.results.data.task
        ci95 = interval(task, labels.label_N, own, _SEED, weight_N=labels.weight_N)
        if reference_N is not None and line is not reference:
            difference = compare(task, labels.label_N, own, reference_N, _SEED, weight_N=labels.weight_N)
    value = line.metrics[metric]
    assert value is not None  # `ranked` leaves the others out
    return Entry(line=line, value=value, ci95=ci95, difference=difference, is_reference=line is reference)


def _predictions(run: Compared) -> ModelPredictions | None:
    if run.schema is None or run.test is None:
        return None
    return predictions_of_models(run.paths, run.schema, run.results, "test")


def _best_on_valid(metric: str, runs: Sequence[Compared], lines: Sequence[Line]) -> Line | None:
    """The best line on the validation rows; None unless all runs have the same ones."""
    first, *others = (run.valid_rows() for run in runs)
    if others and not all(
        first is not None and rows is not None and np.array_equal(first, rows) for rows in others
    ):
        return None
    known = [line for line in lines if line.valid.get(metric) is not None]
    return max(known, key=lambda line: score(metric, line.valid[metric] or 0.0), default=None)
