"""Explains the first rows of a source, or one of them, into a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkgpu.core.errors import DataError
from sparkgpu.core.table.source import find_source
from sparkgpu.predict.apply import checked_batches
from sparkgpu.predict.explain.contributions import explained
from sparkgpu.predict.fitted import FittedModel
from sparkgpu.predict.output import PREDICTION, PredictionFile, check_output
from sparkgpu.predict.readers import refusing_unreadable

_ROWS = 1_000
_MOST_ASKED = 250_000  # rows, of networks some seconds on a laptop


@dataclass(frozen=True, kw_only=True)
class Explained:
    """What was explained: rows, seconds without the loading of the model, notes for the user, and scale."""

    rows: int
    seconds: float
    notes: tuple[str, ...]
    scale: str


def explain_source(
    model: FittedModel, source: str, out: Path, *, rows: int | None, row: int | None, samples: int,
    progress: Callable[[int], None] = lambda rows: None,
) -> tuple[Explained, Mapping[str, Any], Mapping[str, Any]]:  # fmt: skip
    """Write what each column added to the prediction of the first `rows` rows, or of `row`, counted from 0.

    Without `rows` they are 1,000, of a sampled model fewer if that would take more than some seconds.
    `out` ends with ``.parquet`` or ``.csv``; its lines are those of `FittedModel.explain`. Raises
    `ConfigError` and `DataError` as `predict_source` does, and if there is no such row. Also returns the line
    of the first row, or that of its leading class, and the values of its columns.
    """
    check_output(out)
    found, encoder, start = find_source(source, model.schema.dialect), model.encoder(), time.perf_counter()
    explain = model.explainer(samples)
    if rows is None:
        asked = 2 * samples * (len(encoder.columns) + 1) * len(model.members)
        rows = min(max(_MOST_ASKED // asked, 1), _ROWS) if model.is_sampled else _ROWS
    first, many = (0, rows) if row is None else (row, 1)
    seen = done = 0
    line: dict[str, Any] = {}
    values: dict[str, Any] = {}

    def wanted() -> Iterator[pa.RecordBatch]:
        nonlocal seen
        for batch in checked_batches(found, encoder, list(encoder.columns)):
            begin, seen = seen, seen + len(batch)
            if (size := min(first + many, seen) - max(first, begin)) > 0:
                part = batch.slice(max(first - begin, 0), size)
                if not values:
                    values.update({name: part.column(name)[0].as_py() for name in encoder.columns})
                yield part
            if seen > first + many:  # now it is known that there are more
                return

    with refusing_unreadable(found), PredictionFile(out) as file:
        for added in explained(wanted(), model.schema, encoder, explain, first):
            file.write(added)
            if not line:
                lines = pa.table(added).filter(pc.equal(added["row"], first)).to_pylist()
                line = max(lines, key=lambda one: one[PREDICTION])
            done = added["row"][-1].as_py() + 1 - first
            progress(done)
        if not done:
            raise DataError(f"{found.name}: it has no row {row}, only {seen:,} rows, which count from 0.")
    notes = [*model.notes_of_trials, *found.notes, *encoder.findings.sentences()]
    if row is None and seen > done:
        notes.append(f"these are the first {done:,} rows; --rows explains more, --row one")
    if not model.is_sampled and len(model.members) > 1 and line["scale"] != "value":
        notes.append(f"{line['scale']}: the mean of the trials', not that of their mean prediction")
    of_class = f" of {line['class']}" if model.task == "binary" else ""
    took = Explained(
        rows=done, seconds=time.perf_counter() - start, notes=tuple(notes), scale=line["scale"] + of_class
    )
    return took, line, values
