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
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sparkgpu.core.rundir.profile import CheckName, CheckResult
from sparkgpu.core.table.schema import SplitName
from sparkgpu.core.words import counted
from sparkgpu.score.profile.sample import Print, Sample, words_NW

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
    print_U, first_U, count_U = np.unique(train.print_R, return_index=True, return_counts=True)
    place_N = np.minimum(np.searchsorted(print_U, rows.print_R), len(print_U) - 1)
    is_copy_N = print_U[place_N] == rows.print_R
    agree_N = train.label_R[first_U[place_N]] == rows.label_R
    found, size = int(is_copy_N.sum()), len(rows.print_R)
    read = len(train.print_R) / train.total
    ratio = None
    if found >= _FEWEST_SHARE * read * size:
        own_NW, train_NW = words_NW(rows.rows), words_NW(train.rows)
        ratio = _ratio(own_NW, train_NW, lambda own_N, train_N: int(np.isin(own_N, train_N).sum()))
    return Copies(
        split=split,
        rows=found,
        share=found / size,
        agreement=float(agree_N[is_copy_N].mean()) if found else 0.0,
        inside=float(count_U[count_U > 1].sum() / len(train.print_R)),
        ratio=ratio,
        read=read,
    )


def repeated(train: Sample) -> CheckResult:
    """Look for training rows that equal an earlier one, label and all, more than by chance."""
    name: CheckName = "repeated rows"
    print_U, first_U, place_R, count_U = np.unique(
        train.print_R, return_index=True, return_inverse=True, return_counts=True
    )
    rows, most = len(place_R), int(count_U.max())
    extra = rows - len(print_U)
    what = counted(rows, "training row") + ("" if train.is_whole else f" of {train.total:,}")
    if not extra:
        return CheckResult(name=name, passed=True, evidence=f"None of {what} repeats an earlier one.")
    first_R = first_U[place_R]
    repeats_R = first_R != np.arange(rows)
    agreement = float((train.label_R[first_R] == train.label_R)[repeats_R].mean())
    own_NW = words_NW(train.rows)
    bad = extra > 1 and extra >= _FEWEST_SHARE * rows and agreement >= _AGREEMENT_INSIDE
    bad = bad and _ratio(own_NW, own_NW, lambda own_N, _: len(own_N) - len(np.unique(own_N))) >= _CHANCE_RATIO
    if not bad and most >= max(_FEWEST_SAME, _SAME_SHARE * rows):
        is_top_R = place_R == int(count_U.argmax())
        same_label = np.unique(train.label_R[is_top_R], return_counts=True)[1].max() / most
        bad = bool(same_label >= _AGREEMENT_INSIDE) and _ratio_of(own_NW, print_U[count_U.argmax()])
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
    return CheckResult(name=name, passed=not bad, evidence=evidence)


def _ratio_of(own_NW: Print, top: np.uint64) -> bool:
    """Whether the rows that equal one row are nearly all of those that equal it in all features but one."""
    is_top_N = own_NW.sum(axis=1, dtype=np.uint64) == top
    if not is_top_N.any():
        return False
    one_1W = own_NW[is_top_N.argmax()][None, :]
    return _ratio(own_NW, one_1W, lambda own_N, one_1: int((own_N == one_1).sum())) >= _CHANCE_RATIO


def _ratio(own_NW: Print, other_NW: Print, equal: Callable[[Print, Print], int]) -> float:
    """Of the rows that are `equal` in all features but one, the share that are in that one, too.

    For the median feature, of those with the most different values; 0 if hardly any are.
    """
    own_N, other_N = (words.sum(axis=1, dtype=np.uint64) for words in (own_NW, other_NW))
    whole = equal(own_N, other_N)
    finest = sorted(range(own_NW.shape[1]), key=lambda place: -len(np.unique(own_NW[:5_000, place])))
    nearly = [equal(own_N - own_NW[:, place], other_N - other_NW[:, place]) for place in finest[:_LEFT_OUT]]
    return whole / float(np.median(nearly)) if whole > 1 and nearly else 0.0


def duplicates(samples: Mapping[SplitName, Sample]) -> CheckResult:
    """Look for copies of training rows among the test rows and the validation rows."""
    name: CheckName = "duplicates across splits"
    train = samples.get("train")
    names: tuple[SplitName, ...] = ("test", "valid")
    found = [copies(split, samples[split], train) for split in names if split in samples and train]
    if train is None or not found:
        return CheckResult(name=name, passed=True, evidence="Not judged: there is only one split.")
    bad = [each for each in found if each.stand_out]
    shown = bad or found[:1]
    evidence = " ".join(_sentence(each, samples[each.split], train) for each in shown)
    if not bad and shown[0].rows:
        evidence += f" Inside the training rows {_percent(shown[0].inside)} repeat, as by chance."
    return CheckResult(name=name, passed=not bad, evidence=evidence)


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
