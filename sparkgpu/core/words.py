"""Names, numbers and times as text for people, on the terminal and in the report: short, with units."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from pathlib import PurePath

_TITLES = {
    "roc_auc": "ROC AUC",
    "brier": "Brier score",
    "f1": "F1",
    "f1_macro": "macro F1",
    "rmse": "RMSE",
    "rmse_of_logarithms": "RMSE of logarithms",
    "mae": "MAE",
    "r2": "R²",
    "spearman": "Spearman correlation",
}


def metric_title(metric: str) -> str:
    return _TITLES.get(metric, metric.replace("_", " "))


def clean(text: str) -> str:
    """One printable line: a column name may contain line ends or control codes."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def capital(text: str) -> str:
    """The text as it begins a sentence."""
    return text[:1].upper() + text[1:]


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def blend_of_one(only: str) -> str:
    """What to say of a blend that is one model again, instead of showing it."""
    return f"The blend is {only} alone: no other model makes it better on the validation rows."


def gibibytes(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"


def number_text(value: float | None, digits: int = 4) -> str:
    """`value` with `digits` significant digits; larger numbers get thousands separators instead."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    power = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of the rounded value: 0.99999 is 1.000
    return f"{value:,.{max(0, digits - 1 - power)}f}"


def value_text(value: float, separated_from: float = 1e3) -> str:
    """A value of the user's: whole numbers whole, others with five digits or more.

    Thousands have separators from `separated_from` on: 1e4 where they may be years.
    """
    is_whole = value == round(value)
    if abs(value) >= separated_from:
        return f"{value:,.0f}" if is_whole else number_text(value, 5)
    return f"{value:.0f}" if is_whole else f"{value:.5g}"


def seconds_text(value: float) -> str:
    if value < 10:
        return f"{value:.1f} s" if value >= 1 or value == 0 else f"{value:.2f} s"
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


def nearest(name: str, names: Iterable[str]) -> str:
    """``" Did you mean 'x'?"`` for the name closest to `name`, or an empty string."""
    options = list(names)
    folded = {option.casefold(): option for option in reversed(options)}
    found = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6)
    return f" Did you mean {folded[found[0]]!r}?" if found else ""


def short(text: str, most: int = 14) -> str:
    """One line of at most `most` characters; of a longer name its begin and its end, which tell it apart."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    end = most // 4
    return text[: most - 1 - end] + "…" + text[len(text) - end :]


def distinct(names: Iterable[str], most: int = 14) -> list[str]:
    """Each name shortened; those that would look the same get their place as a number."""
    shortened = [short(name, most) for name in names]
    return [
        name if shortened.count(name) == 1 else f"{name} {place}"
        for place, name in enumerate(shortened, start=1)
    ]


def short_source(source: str) -> str:
    """The last part of a path; any other name of a source as it is."""
    return PurePath(source).name or source


def listed(names: Iterable[object], most: int = 8) -> str:
    """``a, b, c and 12 more``: at most `most` names, to fit one sentence."""
    shown = [str(name) for name in names]
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")
