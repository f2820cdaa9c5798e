"""The check for copies: test or validation rows that equal a training row.

Coarse features repeat by nature, so copies have to stand out in one of two ways. Either rows repeat across
the splits much more than inside the training rows: they were copied over. Or the table itself holds copies,
which a random split shares out: then equal rows have equal labels, and leaving out one feature hardly makes
more rows equal, which it does where rows are equal by chance.

Limits: copies with a changed feature are not seen. In a table of few coarse features its own copies cannot be
told from chance. N rows, U different training rows, W features of a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sparkgpu.core.rundir.profile import CheckResult
from sparkgpu.core.table.schema import SplitName
from sparkgpu.core.words import counted
from sparkgpu.score.profile.sample import Print, Sample

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

    `inside` is the share of the training rows that are equal to another one. `stand_out` says whether there
    are more of them than by chance.
    """

    rows: int
    share: float
    agreement: float
    inside: float
    stand_out: bool


def duplicates(samples: Mapping[SplitName, Sample]) -> CheckResult:
    """Look for copies of training rows among the test rows and the validation rows."""
    name = "duplicates across splits"
    names: tuple[SplitName, ...] = ("test", "valid")
    train = samples["train"]
    found = {split: _copies(samples[split], train) for split in names if split in samples}
    if not found:
        return CheckResult(name=name, passed=True, evidence="Not judged: there is only one split.")
    bad = [split for split, copies in found.items() if copies.stand_out]
    shown = bad or list(found)[:1]
    evidence = " ".join(_sentence(split, found[split], samples[split], train) for split in shown)
    first = found[shown[0]]
    if not bad and first.rows:
        evidence += f" Inside the training rows {_percent(first.inside)} repeat, as by chance."
    return CheckResult(name=name, passed=not bad, evidence=evidence, value=first.share, bound=_FEWEST_SHARE)


def _copies(own: Sample, train: Sample) -> Copies:
    """Of the training rows only a part was looked at, and so about that part of the copies was found."""
    print_N, train_N = (sample.words_NW.sum(axis=1, dtype=np.uint64) for sample in (own, train))
    print_U, first_U, count_U = np.unique(train_N, return_index=True, return_counts=True)
    place_N = np.minimum(np.searchsorted(print_U, print_N), len(print_U) - 1)
    is_copy_N = print_U[place_N] == print_N
    agree_N = train.rows.label_N[first_U[place_N]] == own.rows.label_N
    found = int(is_copy_N.sum())
    found_share, found_inside = found / own.size, float(count_U[count_U > 1].sum() / train.size)
    agreement = float(agree_N[is_copy_N].mean()) if found else 0.0
    part = train.size / train.total
    share, inside = (min(each / part, 1.0) for each in (found_share, found_inside))
    stand_out = False
    if share >= _FEWEST_SHARE and found > 1:
        deviation = math.sqrt(found_share * (1 - found_share) / own.size) / part
        excess = share - inside
        copied_over = excess >= _EXCESS * (1 - inside) and excess >= _DEVIATIONS * deviation
        stand_out = copied_over or (
            agreement >= _AGREEMENT
            and (share >= _MANY_SHARE or _ratio(own.words_NW, train.words_NW) >= _CHANCE_RATIO)
        )
    return Copies(
        rows=found, share=found_share, agreement=agreement, inside=found_inside, stand_out=stand_out
    )


def _ratio(own_NW: Print, train_NW: Print) -> float:
    """Of the rows that equal a training row in all features but one, the share that do in that one, too.

    For the median feature, of those with the most different values; 0 if hardly any are.
    """
    own_N, train_N = (words.sum(axis=1, dtype=np.uint64) for words in (own_NW, train_NW))
    whole = int(np.isin(own_N, train_N).sum())
    finest = sorted(range(own_NW.shape[1]), key=lambda place: -len(np.unique(own_NW[:5_000, place])))
    nearly = [
        int(np.isin(own_N - own_NW[:, place], train_N - train_NW[:, place]).sum())
        for place in finest[:_LEFT_OUT]
    ]
    return whole / float(np.median(nearly)) if whole > 1 and nearly else 0.0


def _sentence(split: SplitName, found: Copies, own: Sample, train: Sample) -> str:
    what = counted(own.size, f"{split} row")
    if not found.rows:
        return f"None of {what} repeats a training row."
    part = f" (of {train.size:,} of {train.total:,} that were looked at)" if train.size < train.total else ""
    return (
        f"{found.rows:,} of {what} ({_percent(found.share)}) have all features of a training row{part}; "
        f"{_percent(found.agreement)} of them have its label too."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.995 or share == 1 else f"{100 * share:.2f} %"
