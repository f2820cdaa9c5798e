"""Predicts the rows of a source into a file, batch by batch: memory does not grow with the rows.

Where the source holds the target, the predictions are scored as well, on as many rows as fit a bound.

N rows, C classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.table.source import Source, find_source
from sparkgpu.core.words import counted
from sparkgpu.predict.fitted import FittedModel
from sparkgpu.predict.output import PredictionFile, check_output, of_target
from sparkgpu.predict.readers import reader_of, refusing_unreadable
from sparkgpu.prepare.column_values import as_float64, numbers
from sparkgpu.prepare.encoding import Encoder, labels
from sparkgpu.prepare.spelling import spelled
from sparkgpu.score import compare, decision, metrics

_MOST_SCORED = 5_000_000  # values in memory: 40 MB
_SEED = 7


@dataclass(frozen=True, kw_only=True)
class Score:
    """The metrics of the first `rows` rows with a target, and the 95 % interval of the primary `metric`.

    `decided` is what the written decisions are worth, in terms of `goal`, if the run has a rule for them.
    """

    rows: int
    of_all: bool
    metrics: dict[str, float | None]
    metric: str
    interval: tuple[float, float] | tuple[None, None]
    goal: str | None
    decided: decision.Effect | None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was predicted: rows, seconds without the loading of the model, and notes for the user."""

    rows: int
    seconds: float
    notes: tuple[str, ...]
    score: Score | None


@dataclass(kw_only=True)
class _Scored:
    """The predictions of rows with a target, as far as they are kept."""

    model: FittedModel
    weight: str | None
    values: list[NDArray[np.float64]] = field(default_factory=list)
    labels: list[NDArray[Any]] = field(default_factory=list)
    weights: list[NDArray[np.float64]] = field(default_factory=list)
    kept: int = 0
    dropped: int = 0
    unknown: int = 0

    def add(self, batch: pa.RecordBatch, values: NDArray[np.float64]) -> None:
        schema = self.model.schema
        column = batch.column(schema.target)
        label_N = labels(column, schema)
        has_N = label_N >= 0 if schema.classes else np.isfinite(label_N)
        self.unknown += max(len(column) - column.null_count - int(has_N.sum()), 0)
        if self.kept >= _MOST_SCORED:
            self.dropped += int(has_N.sum())
            return
        self.values.append(values[has_N])
        self.labels.append(label_N[has_N])
        self.kept += self.values[-1].size
        if self.weight is not None:
            self.weights.append(
                as_float64(numbers(spelled(batch.column(self.weight), "double", self.model.schema.dialect)))[
                    has_N
                ]
            )

    def notes(self) -> list[str]:
        """What the metrics leave out, and what they are of."""
        schema, notes = self.model.schema, []
        if self.unknown:
            what = "a class that training never saw" if schema.classes else "no finite number"
            rows = counted(self.unknown, "row")
            notes.append(f"the {self.model.target} of {rows} is {what}; the metrics leave them out")
        if schema.metric is not None and self._metric is None:
            notes.append(f"the metric {schema.metric} of the run is of a package that is not installed here")
        if schema.decision is not None:
            notes.append(
                "the metrics are of probabilities and most probable classes, not of that rule; the "
                f"{self.goal} is of both"
            )
        return notes

    @property
    def goal(self) -> str | None:
        rule = self.model.schema.decision
        return decision.goal(rule, self.model.schema.classes) if rule else None

    @property
    def _metric(self) -> str | None:
        """The metric that the run asked for, where it is known."""
        with suppress(ConfigError):
            if self.model.schema.metric is not None:
                metrics.check_known(self.model.schema.metric)
            return self.model.schema.metric
        return None

    def score(self) -> Score | None:
        label_N = np.concatenate(self.labels) if self.labels else np.empty(0)
        if not len(label_N):
            return None
        task, asked = self.model.schema.task, self._metric
        values, also = np.concatenate(self.values), self.model.schema.deviances
        weight_N = np.concatenate(self.weights) if self.weights else None
        rule, threshold = self.model.schema.decision, self.model.threshold
        return Score(
            rows=len(label_N),
            of_all=self.dropped == 0,
            metric=metrics.primary(task, asked),
            metrics=metrics.compute(task, label_N, values, weight_N, asked=asked, also=also),
            interval=compare.interval(task, label_N, values, _SEED, weight_N=weight_N, asked=asked),
            goal=self.goal,
            decided=decision.effect(rule, threshold, label_N, values, weight_N, seed=_SEED) if rule else None,
        )


def predict_source(
    model: FittedModel,
    source: str,
    out: Path,
    *,
    keep_columns: bool = False,
    progress: Callable[[int], None] = lambda rows: None,
) -> Outcome:
    """Write the predictions of a source's rows to `out`, in their order; `progress` gets the rows so far.

    `out` ends with ``.parquet`` or ``.csv``. With `keep_columns` the source's columns stand before them.
    Raises `ConfigError` if `out` cannot be written, and `DataError` if the source cannot be read, or if it
    lacks a column that the model needs.
    """
    (outcome,) = predict_targets([model], source, out, keep_columns=keep_columns, progress=progress)
    return outcome


def predict_targets(
    models: Sequence[FittedModel],
    source: str,
    out: Path,
    *,
    keep_columns: bool = False,
    progress: Callable[[int], None] = lambda rows: None,
) -> list[Outcome]:
    """As `predict_source`, by a model of each target of one run, whose features are the same.

    The columns of several have the target's name before theirs.
    """
    check_output(out)
    schema, encoder = models[0].schema, models[0].encoder()
    found = find_source(source, schema.dialect)
    own = [*(model.target for model in models), *([schema.weight] if schema.weight else [])]
    columns = None if keep_columns else list(dict.fromkeys([*encoder.columns, *own]))
    rows, start = 0, time.perf_counter()
    scored: dict[str, _Scored] = {}
    with refusing_unreadable(found), PredictionFile(out) as file:
        for batch in checked_batches(found, encoder, columns):
            names = batch.schema.names
            if rows == 0:
                weight = schema.weight if schema.weight in names else None
                known = (model for model in models if model.target in names)
                scored = {model.target: _Scored(model=model, weight=weight) for model in known}
            encoded, added = encoder.rows(batch), {}
            for model in models:
                values = model.of_rows(encoded)
                if model.target in scored:
                    scored[model.target].add(batch, values)
                for name, column in model.columns(values).items():
                    added[name if len(models) == 1 else of_target(model.target, name)] = column
            file.write(added, batch if keep_columns else None)
            rows += batch.num_rows
            progress(rows)
    seconds = time.perf_counter() - start
    of_rows = (*found.notes, *encoder.findings.sentences()), _trained_on(schema, found, rows)
    outcomes = []
    for model in models:
        one = scored.get(model.target)
        before, after = of_rows if model is models[0] else ((), ())  # said once
        outcomes.append(
            Outcome(
                rows=rows,
                seconds=seconds,
                notes=(*model.notes, *before, *(one.notes() if one is not None else ()), *after),
                score=one.score() if one is not None else None,
            )
        )
    return outcomes


def checked_batches(
    source: Source, encoder: Encoder, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """Some columns (None: all) of a source's rows; raises `DataError` if it has no rows or lacks a column."""
    read, is_empty = reader_of(source), True
    for batch in filter(len, read(source, columns)):
        if is_empty and not set(encoder.columns) <= set(batch.schema.names):
            encoder.check(next(iter(read(source, None))).schema.names, source.name)  # it names all columns
        is_empty = False
        yield batch
    if is_empty:
        raise DataError(f"{source.name}: the table has no rows. Give a table with rows.")


def _trained_on(schema: TableSchema, source: Source, rows: int) -> list[str]:
    """A warning if these are the rows of the run itself, in whatever format, by their name and number."""
    names = [Path(name).name.partition(".")[0] for name in (schema.source, source.name)]
    own = min((table.first for table in schema.held_out.values()), default=schema.rows + schema.rows_refused)
    if names[0] != names[1] or rows != own:
        return []
    return [
        "this looks like the table of the run, so most of its rows were trained on; the run's report holds "
        "the metrics of its test rows"
    ]
