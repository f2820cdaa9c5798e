"""The check for copies: test rows whose features all equal those of a training row.

Coarse features repeat by nature, so copies have to stand out in one of two ways. Either rows repeat across
the splits much more than inside the training rows: they were copied over. Or the table itself holds copies,
which a random split shares out: then equal rows have equal labels, and leaving out one feature hardly makes
more rows equal, which it does where rows are equal by chance.

Limits: copies with a changed feature are not seen. In a table of few coarse features its own copies cannot be
told from chance. N rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

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
    finest = sorted(range(own_NW.shape[1]), key=lambda place: -len(np.unique(own_NW[:5_000, place])))
    nearly = [_equal(own_N - own_NW[:, word], train_N - train_NW[:, word]) for word in finest[:_LEFT_OUT]]
    middle = float(np.median(nearly)) if nearly else 0.0
    return all_equal / middle if middle else None


def _equal(own_N: Print, train_N: Print) -> int:
    return int(np.isin(own_N, train_N).sum())


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
