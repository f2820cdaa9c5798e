"""How names, numbers and times read on a terminal: short, four significant digits, nothing unprintable."""

from __future__ import annotations

import math

_TITLES = {"roc_auc": "ROC AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R2", "f1": "F1", "f1_macro": "macro F1"}


def metric_title(metric: str) -> str:
    return _TITLES.get(metric, metric.replace("_", " "))


def clean(text: str) -> str:
    """One printable line: a column name may hold line ends or the terminal's control codes."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def gibibytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def number_text(value: float | None) -> str:
    """Four significant digits."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-4:
        return f"{value:.3g}"
    return f"{value:.{3 - math.floor(math.log10(abs(value)))}f}"


def seconds_text(value: float) -> str:
    if value < 10:
        return f"{value:.1f} s"
    return (
        f"{value:.0f} s"
        if value < 90
        else f"{clock_text(value)} min"
        if value < 3600
        else f"{clock_text(value)} h"
    )


def clock_text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
