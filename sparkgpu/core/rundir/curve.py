"""``learning_curve.csv``: the scores of a trial after each step, on its training and validation rows.

A step is a tree or an epoch. A blank is a value that the engine did not report.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_HEADER = ("step", "elapsed_s", "metric", "train", "valid")
_EARLIER = 0.9
_NOTICEABLE = 1e-3
_FEWEST_POINTS = 3


class CurvePoint(NamedTuple):
    """One line; `elapsed_s` is the time since the start of training."""

    step: int
    elapsed_s: float | None
    train: float | None
    valid: float | None


def curve_as_csv(metric: str, points: Iterable[CurvePoint]) -> str:
    """The whole file; its values are of `metric`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    for point in points:
        writer.writerow((point.step, point.elapsed_s, metric, point.train, point.valid))
    return text.getvalue()


def read_curve(path: Path) -> tuple[str, list[CurvePoint]]:
    """The file's first metric with its points: none if it is absent or empty. Damaged lines are left out."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    metric, points = "", []
    for line in lines[1:]:
        with suppress(ValueError, csv.Error):  # as of a line with another number of values
            ((step, elapsed_s, own, train, valid),) = csv.reader([line])
            point = CurvePoint(int(step), _number(elapsed_s), _number(train), _number(valid))
            metric = metric or own
            points += [point] if own == metric else []
    return metric, points


def still_improving(points: Sequence[CurvePoint], most_steps: int, *, anneals: bool = False) -> bool:
    """Whether training reached `most_steps` while the validation metric, a loss, was still falling.

    That is so if its last tenth brought at least a tenth of a percent and at least one point of the curve. If
    it `anneals`, its learning rate falls to nothing at `most_steps`, and then the last steps always gain.
    """
    if anneals:
        return False
    known = [(point.step, point.valid) for point in points if point.valid is not None]
    if len(known) < _FEWEST_POINTS or known[-1][0] < most_steps:
        return False
    before = [valid for step, valid in known if step <= _EARLIER * most_steps]
    after = [valid for step, valid in known if step > _EARLIER * most_steps]
    return bool(before and after) and min(before) - min(after) > _NOTICEABLE * abs(min(before))


def _number(text: str) -> float | None:
    value = float(text or "nan")
    return None if math.isnan(value) else value
