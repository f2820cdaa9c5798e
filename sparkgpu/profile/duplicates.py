"""The checks for copies: test rows that equal a training row, and training rows that occur several times.

Coarse features repeat by nature, so copies have to stand out in one of two ways. Either rows repeat across
the splits much more than inside the training rows: they were copied over. Or the table itself holds copies,
which a random split shares out: then equal rows have equal labels, and leaving out one feature hardly makes
more rows equal, which it does where rows are equal by chance.

Training rows that repeat are judged by the second way alone, and so is the row that repeats most: equal rows
are usual where features are few.

Limits: copies with a changed feature are not seen. In a table of few coarse features its own copies cannot be
told from chance. N rows looked at, R rows read, W features of a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.profile.sample import Print, Sample, words_NW
from sparkgpu.rundir.profile import CheckResult
from sparkgpu.table.schema import SplitName
from sparkgpu.words import counted

_FEWEST_SHARE = 0.02
_EXCESS = 0.03
_DEVIATIONS = 4.0
_MANY_SHARE = 0.10
_AGREEMENT = 0.95
_CHANCE_RATIO = 0.95
_LEFT_OUT = 12
_AGREEMENT_INSIDE = 0.90  # some rows also repeat by chance, with another label
_FEWEST_SAME = 20
_SAME_SHARE = 0.01


@dataclass(frozen=True, kw_only=True)
class Copies:
    """The rows of a split that are equal to a training row: their number and share, and the agreeing labels.

    `inside` is the share of the training rows that are equal to another one. `ratio` is how many of the rows
    that are equal in all features but one are equal in that one too, for the median feature; None if unknown.
    Of the training rows only the share `read` was read, and so about that share of the copies was found.
    """

    split: SplitName
    rows: int
    share: float
    agreement: float
    inside: float
    ratio: float | None
    read: float = 1.0

    @property
    def stand_out(self) -> bool:
        share, inside = (min(each / self.read, 1.0) for each in (self.share, self.inside))
        if share < _FEWEST_SHARE or self.rows < 2:
            return False
        deviation = math.sqrt(self.share * (1 - self.share) / (self.rows / self.share)) / self.read
        excess = share - inside
        if excess >= _EXCESS * (1 - inside) and excess >= _DEVIATIONS * deviation:
            return True
        by_chance = self.ratio is None or self.ratio < _CHANCE_RATIO
        return self.agreement >= _AGREEMENT and (share >= _MANY_SHARE or not by_chance)


def copies(split: SplitName, rows: Sample, train: Sample) -> Copies:
    """The copies of training rows in a split."""
    order = np.argsort(train.print_R, kind="stable")
    sorted_R = train.print_R[order]
    place_N = np.minimum(np.searchsorted(sorted_R, rows.print_R), len(sorted_R) - 1)
    is_copy_N = sorted_R[place_N] == rows.print_R
    agree_N = train.label_R[order[place_N]] == rows.label_R
    is_first_R = np.append(True, sorted_R[1:] != sorted_R[:-1])
    counts = np.diff(np.append(np.flatnonzero(is_first_R), len(sorted_R)))
    inside = float(counts[counts > 1].sum() / len(sorted_R))
    found = int(is_copy_N.sum())
    read = len(train.print_R) / train.total
    return Copies(
        split=split,
        rows=found,
        share=found / len(rows.print_R),
        agreement=float(agree_N[is_copy_N].mean()) if found else 0.0,
        inside=inside,
        ratio=_ratio(rows, train) if found >= _FEWEST_SHARE * read * len(rows.print_R) else None,
        read=read,
    )


def _ratio(rows: Sample, train: Sample) -> float | None:
    own_NW, train_NW = words_NW(rows.rows), words_NW(train.rows)
    own_N, train_N = own_NW.sum(axis=1, dtype=np.uint64), train_NW.sum(axis=1, dtype=np.uint64)
    all_equal = _equal(own_N, train_N)
    nearly = [_equal(own_N - own_NW[:, word], train_N - train_NW[:, word]) for word in _finest(own_NW)]
    middle = float(np.median(nearly)) if nearly else 0.0
    return all_equal / middle if middle else None


def _equal(own_N: Print, train_N: Print) -> int:
    return int(np.isin(own_N, train_N).sum())


def repeated(train: Sample) -> CheckResult:
    """Look for training rows that equal an earlier one, label and all, more than by chance."""
    _, first_R, place_R, count_U = np.unique(
        train.print_R, return_index=True, return_inverse=True, return_counts=True
    )
    rows, most = len(place_R), int(count_U.max())
    extra = rows - len(count_U)
    what = counted(rows, "training row") + ("" if train.is_whole else f" of {train.total:,}")
    if not extra:
        return CheckResult(
            name="repeated rows", passed=True, evidence=f"None of {what} repeats an earlier one."
        )
    is_top_R = place_R == int(count_U.argmax())
    agreement = _agreement(train, first_R[place_R])
    many = extra > 1 and extra >= _FEWEST_SHARE * rows and agreement >= _AGREEMENT_INSIDE
    one = most >= max(_FEWEST_SAME, _SAME_SHARE * rows) and _agreement_of(train.label_R[is_top_R])
    bad = (many and _ratio_inside(train) >= _CHANCE_RATIO) or (
        one >= _AGREEMENT_INSIDE and _ratio_of(train, train.print_R[is_top_R][0]) >= _CHANCE_RATIO
    )
    evidence = (
        f"{extra:,} of {what} ({_percent(extra / rows)}) repeat an earlier one, the most frequent "
        f"{counted(most, 'time')}"
    )
    evidence += (
        f"; {_percent(agreement)} of them have its label too. Each copy counts again in training: leave them "
        "out of the source unless each is an observation of its own."
        if bad
        else ", no more than chance may do."
    )
    return CheckResult(name="repeated rows", passed=not bad, evidence=evidence)


def _agreement(train: Sample, first_R: NDArray[np.int64]) -> float:
    """The share of the rows that repeat an earlier one, `first_R`, and have its label."""
    repeats_R = first_R != np.arange(len(first_R))
    if not repeats_R.any():
        return 0.0
    return float((train.label_R[first_R] == train.label_R)[repeats_R].mean())


def _ratio_inside(train: Sample) -> float:
    """Of the rows that equal an earlier one in all features but one, the share that equal it in that, too.

    For the median feature, among the rows that are looked at; 0 if too few of them repeat.
    """
    own_NW = words_NW(train.rows)
    own_N = own_NW.sum(axis=1, dtype=np.uint64)
    equal = _repeats(own_N)
    nearly = [_repeats(own_N - own_NW[:, word]) for word in _finest(own_NW)]
    return equal / float(np.median(nearly)) if equal > 1 else 0.0


def _ratio_of(train: Sample, print_: np.uint64) -> float:
    """The same of the rows that equal one row alone."""
    own_NW = words_NW(train.rows)
    own_N = own_NW.sum(axis=1, dtype=np.uint64)
    is_equal_N = own_N == print_
    if not is_equal_N.any():
        return 0.0
    one_W = own_NW[is_equal_N.argmax()]
    others_NW = one_W.sum(dtype=np.uint64) - one_W[None, :]
    nearly = [int((own_N - own_NW[:, word] == others_NW[:, word]).sum()) for word in _finest(own_NW)]
    return int(is_equal_N.sum()) / float(np.median(nearly))


def _agreement_of(label_R: NDArray[Any]) -> float:
    """The share of the most frequent label."""
    return float(np.unique(label_R, return_counts=True)[1].max() / len(label_R))


def _repeats(print_N: Print) -> int:
    return len(print_N) - len(np.unique(print_N))


def _finest(own_NW: Print) -> list[int]:
    """The features with the most different values."""
    return sorted(range(own_NW.shape[1]), key=lambda place: -len(np.unique(own_NW[:5_000, place])))[
        :_LEFT_OUT
    ]


def duplicates(samples: Mapping[SplitName, Sample]) -> CheckResult:
    """Look for copies of training rows among the test rows and the validation rows."""
    train = samples.get("train")
    names: tuple[SplitName, ...] = ("test", "valid")
    found = [copies(split, samples[split], train) for split in names if split in samples and train]
    if train is None or not found:
        return CheckResult(
            name="duplicates across splits", passed=True, evidence="Not judged: there is only one split."
        )
    bad = [each for each in found if each.stand_out]
    shown = bad or found[:1]
    evidence = " ".join(_sentence(each, samples[each.split], train) for each in shown)
    if not bad and shown[0].rows:
        evidence += f" Inside the training rows {_percent(shown[0].inside)} repeat, as by chance."
    return CheckResult(name="duplicates across splits", passed=not bad, evidence=evidence)


def _sentence(found: Copies, rows: Sample, train: Sample) -> str:
    what = f"{counted(len(rows.print_R), f'{found.split} row')}"
    if not found.rows:
        return f"None of {what} repeats a training row."
    part = "" if train.is_whole else f" (of {len(train.print_R):,} of {train.total:,} that were read)"
    return (
        f"{found.rows:,} of {what} ({_percent(found.share)}) have all features of a training row{part}; "
        f"{_percent(found.agreement)} of them have its label too."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.995 or share == 1 else f"{100 * share:.2f} %"
