"""Several finished runs side by side: which share their test rows, and one leaderboard of those that do.

It reads the files of the runs and changes none. Models are ranked only where they were scored on the same
test rows. N rows.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sparkgpu.core.errors import ConfigError, SparkgpuError
from sparkgpu.core.rundir.files import UNREADABLE
from sparkgpu.core.rundir.metrics_json import Results, finished_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.core.words import clean, distinct, listed, metric_title, number_text
from sparkgpu.present.entries import Entry, Split, contestants, entries, ranked
from sparkgpu.score.compare import compare
from sparkgpu.score.metrics import check_installed
from sparkgpu.score.predictions import SEED, LabelReader, Labels, ModelPredictions, predictions_of_models
from sparkgpu.score.rows import FloatArray

_MOST_LETTERS = 32  # of a run's name; the table of the runs has the whole of it


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A run and its short name here."""

    name: str
    paths: RunPaths
    results: Results

    @cached_property
    def schema(self) -> TableSchema | None:
        """None if the table is not in the run's folder."""
        return read_schema(self.paths) if self.paths.schema.is_file() else None

    @cached_property
    def _reader(self) -> LabelReader | None:
        return LabelReader(self.paths, self.schema) if self.schema else None

    def labels(self, split: Split) -> Labels | None:
        """Those of all folds together; None if they cannot be read."""
        with suppress(SparkgpuError):
            return self._reader.all(split) if self._reader else None
        return None

    @property
    def table(self) -> tuple[object, ...]:
        """What makes two tables the same: the rows' content in any order, the target, and the weights."""
        data = self.results.data
        weight = self.schema.weight if self.schema else None
        return data.fingerprint, data.target, data.task, data.classes, weight

    def has_rows_of(self, other: Compared, split: Split) -> bool:
        """Whether both have the same rows in `split`, or are one run.

        Row ids alone are positions in the source, which may have been written in another order.
        """
        if self is other:
            return True
        a, b = self.labels(split), other.labels(split)
        if a is None or b is None or self.table != other.table:
            return False
        return np.array_equal(a.row_id_N, b.row_id_N) and np.array_equal(a.label_N, b.label_N)

    def is_ranked_with(self, other: Compared) -> bool:
        """Whether one metric decided both, on the same test rows."""
        same_metric = self.results.comparison.metric == other.results.comparison.metric
        return same_metric and self.has_rows_of(other, "test")

    def predictions(self, metric: str) -> ModelPredictions | None:
        """Those of the test rows, for intervals of `metric`; None without them."""
        if self.schema is None or self.labels("test") is None:
            return None
        found = predictions_of_models(self.paths, self.schema, self.results, "test")
        return replace(found, metric=metric)

    def settings(self) -> dict[str, str]:
        """``run.toml`` by dotted keys, as text; empty if the file is gone or cannot be read."""
        with suppress(*UNREADABLE), self.paths.config.open("rb") as file:
            return dict(_flat(tomllib.load(file)))
        return {}


def read_runs(folders: Sequence[Path]) -> tuple[Compared, ...]:
    """The runs in the order given. Raises `ConfigError` unless they are finished, several, and different."""
    if len(folders) < 2:
        one = f"{folders[0]} alone was given" if folders else "no run was given"
        raise ConfigError(f"compare: {one}. Give the folders of two or more finished runs.")
    runs: list[Compared] = []
    for name, folder in zip(short_names(folders), folders, strict=True):
        paths = RunPaths(root=folder)
        results = finished_results(paths)
        check_installed(results.comparison.metric, folder)
        same = next((run for run in runs if run.results == results), None)
        if same is not None:
            raise ConfigError(f"{same.paths.root} and {folder}: they hold the same run. Name each run once.")
        runs.append(Compared(name=name, paths=paths, results=results))
    return tuple(runs)


def short_names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names, or their whole paths if two have the same; long ones without their middle."""
    names = [clean(folder.resolve().name) for folder in folders]
    if len(set(names)) < len(names):
        names = [clean(str(folder)) for folder in folders]
    return distinct(names, _MOST_LETTERS)


def boards_of(runs: Sequence[Compared]) -> list[tuple[Compared, ...]]:
    """The runs in groups of one metric, scored on the same rows of the same table, in the order given."""
    groups: list[list[Compared]] = []
    for run in runs:
        own = next((group for group in groups if run.is_ranked_with(group[0])), None)
        if own is None:
            groups.append([run])
        else:
            own.append(run)
    return [tuple(group) for group in groups]


def why_apart(boards: Sequence[Sequence[Compared]]) -> str | None:
    """Why there is no single leaderboard, in one sentence; None if there is one."""
    if len(boards) < 2:
        return None
    unread = [run.name for board in boards for run in board if run.labels("test") is None]
    if unread:
        return (
            f"No leaderboard ranks all of them: the folder of {listed(unread)} lacks its table, so the test "
            "rows cannot be checked."
        )
    kinds = {(run.results.data.target, run.results.data.task) for board in boards for run in board}
    if len(kinds) > 1:
        what = listed(f"{target} ({task})" for target, task in sorted(kinds))
        return f"No leaderboard ranks all of them: the runs predict different targets, {what}."
    tables = {run.table for board in boards for run in board}
    if len(tables) > 1:
        return f"No leaderboard ranks all of them: the runs are of {len(tables)} different tables."
    metrics = {metric_title(run.results.comparison.metric) for board in boards for run in board}
    if len(metrics) > 1:
        return (
            f"No leaderboard ranks all of them: different metrics decided them, {listed(sorted(metrics))}. "
            "Give the runs one --metric."
        )
    return (
        "No leaderboard ranks all of them: the runs are of one table, but they drew different test rows. The "
        "same seed and [split] give the same rows."
    )


def _flat(values: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for place, item in enumerate(value):
                yield from _flat(item, f"{prefix}{key}.{item.get('name', place)}.")
        else:
            yield f"{prefix}{key}", _text(value)


def _text(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        names = listed((run.name for run in self.runs), most=4)
        return f"{clean(data.target)} ({data.task}): {names}"

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        reference = next((entry for entry in self.entries if entry.is_reference), None)
        if reference is None:
            return "No model of these runs finished, so there is nothing to rank."
        value = f"{metric_title(self.metric)} {number_text(reference.value)}"
        text = f"Best on the {self.chosen_on} rows: {_of_run(reference)}, with {value}"
        text += " on the test rows" if self.chosen_on == "validation" else ""
        better = [_of_run(entry) for entry in self.entries if entry.verdict == "better"]
        level = [_of_run(entry) for entry in self.entries if entry.verdict in ("tie", "equal")]
        parts = [
            f"{words}: {listed(names, most=4)}"
            for words, names in (("better on the test rows", better), ("level with it", level))
            if names
        ]
        if not parts and any(entry.verdict == "worse" for entry in self.entries):
            parts.append("all others are behind it")
        return "; ".join((text, *parts)) + "."

    def as_dict(self) -> dict[str, object]:
        """The leaderboard for programs."""
        return {
            "metric": self.metric,
            "runs": {run.name: str(run.paths.root) for run in self.runs},
            "verdict": self.verdict,
            "chosen_on": self.chosen_on,
            "models": [entry.as_dict() for entry in self.entries],
        }

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


def _of_run(entry: Entry) -> str:
    return f"{entry.name} of {entry.run}"


def board(runs: Sequence[Compared]) -> Board:
    """The leaderboard of `runs`, which have the same test rows (or are one run).

    The reference is the best model on the validation rows, so that its place on the test rows is not the
    best of many; every other model is compared with it in pairs, row by row. The predictions of one run at a
    time are in memory, beside those of the reference.
    """
    metric = runs[0].results.comparison.metric
    of = ranked(metric, (one for run in runs for one in contestants(entries(run.results, run.name))))
    on_valid = _best_on_valid(metric, runs, of)
    reference = on_valid or next(iter(of), None)
    reference_N: FloatArray | None = None
    compared: dict[tuple[str, str], Entry] = {}
    for run in sorted(runs, key=lambda run: reference is None or run.name != reference.run):
        rows = run.predictions(metric)
        if rows is not None and reference is not None and run.name == reference.run:
            reference_N = rows.values.get(reference.name)
        for one in (one for one in of if one.run == run.name):
            task, difference = run.results.data.task, None
            own = None if rows is None else rows.values.get(one.name)
            if rows is not None and own is not None and reference_N is not None and one is not reference:
                labels = rows.labels
                difference = compare(
                    task, labels.label_N, own, reference_N, SEED, weight_N=labels.weight_N, asked=metric
                )
            ci95 = rows.interval(task, one.name) if rows is not None else (None, None)
            compared[one.run, one.name] = replace(
                one, ci95=ci95, difference=difference, is_reference=one is reference
            )
    return Board(
        metric=metric,
        runs=tuple(runs),
        entries=tuple(compared[one.run, one.name] for one in of),
        chosen_on="test" if on_valid is None else "validation",
    )


def _best_on_valid(metric: str, runs: Sequence[Compared], of: Sequence[Entry]) -> Entry | None:
    """The best entry on the validation rows; None unless all runs have the same ones."""
    if not all(run.has_rows_of(runs[0], "valid") for run in runs):
        return None
    best = next(iter(ranked(metric, of, "valid")), None)
    return best if best and best.metrics("valid").get(metric) is not None else None
