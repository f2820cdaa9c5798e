"""Assigns each row to training, validation or test, and to a fold.

Rows lie on a line that is cut at the shares. A row's place is a hash in [0, 1) of the seed and its id, so any
distribution of the same rows over files and tasks gives the same split; where equal values of a column stay
together, it is a hash of the value, or the time. Up to `_EXACT_ROWS` rows, each class (or the whole table,
without classes) is cut at exact shares, and always into folds. Larger ones are cut at the share of the hash
itself, which is even enough (for 100,000 rows, one standard error of a share of .15 is .001).

N rows of a batch, U units (rows, or the rows that stay together), C classes, S shares.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparkgpu.core.config.keys import SplitConfig
from sparkgpu.core.errors import DataError
from sparkgpu.core.table.rows import as_numpy
from sparkgpu.core.words import listed
from sparkgpu.prepare.column_values import as_float64, as_texts, decoded, numbers, timestamps
from sparkgpu.prepare.columns import ROW_ID, is_number, spark_type
from sparkgpu.prepare.hashes import as_places, mixed, places_of, value_hashes
from sparkgpu.prepare.target import Target, Targets, weights_of

NONE, TRAIN, VALID, TEST = 0, 1, 2, 3
SPLITS = {"train": TRAIN, "valid": VALID, "test": TEST}

_EXACT_ROWS = 100_000
_PARTS = 10

Places = NDArray[np.float64]
Units = tuple[Places, NDArray[np.int64]]
"""The places (U,) of units and the number of rows in each (U,)."""


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """The split of each row (N,), `NONE` without a target; its fold, -1 without one; its label and class.

    Labels of several targets are (N, T).
    """

    split_N: NDArray[np.int8]
    fold_N: NDArray[np.int32] | None
    label_N: NDArray[Any]
    class_N: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SplitRule:
    """How rows get their split: a pure function of row id, target and the column of the split.

    `cuts_CS` hold, by class (one if there are none), the places up to which rows belong to test, and to test
    or validation; in a split by column without validation rows, those up to which training rows validate.
    `fold_cuts_CS` part what is not test, and `part_cuts_S` the training rows of units that stay together,
    without folds. From the row ids `starts` on, rows are validation or test rows of
    the user's own.
    """

    config: SplitConfig
    seed: int
    target: Target | Targets
    cuts_CS: Places = field(default_factory=lambda: np.empty((0, 0)))
    fold_cuts_CS: Places = field(default_factory=lambda: np.empty((0, 0)))
    part_cuts_S: Places = field(default_factory=lambda: np.empty(0))
    starts: Mapping[int, int] = field(default_factory=dict)

    @property
    def shares(self) -> dict[int, float]:
        """The shares of test and, without folds, validation rows that are cut from the source."""
        wanted = {TEST: self.config.test} | ({} if self.config.folds else {VALID: self.config.valid})
        return {code: share for code, share in wanted.items() if code not in self.starts}

    def held_out(self, batch: pa.RecordBatch) -> NDArray[np.int8]:
        """The split (N,) of rows of the user's own; `NONE` for rows of the source."""
        row_id_N = as_numpy(batch.column(ROW_ID))
        split_N = np.full(len(row_id_N), NONE, dtype=np.int8)
        for code, first in self.starts.items():
            split_N[row_id_N >= first] = code
        return split_N

    @property
    def columns(self) -> list[str]:
        """The columns that `assigned` needs beside the row id."""
        targets = (target.column for target in self.target.each)
        return [name for name in (*targets, self.config.column) if name is not None]

    @property
    def keeps_units(self) -> bool:
        """Whether equal values of the column stay together; classes then do not matter."""
        return self.config.kind in ("group", "time")

    @property
    def goes_by_time(self) -> bool:
        """Whether a training row's part tells which rows came before it."""
        return self.config.kind == "time" and not self.config.folds

    def strata_of(self, class_N: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of `cuts_CS` (N,) that cut these classes."""
        return np.zeros_like(class_N) if self.keeps_units else class_N

    def places(self, batch: pa.RecordBatch) -> Places:
        """Where each row (N,) lies on the line that is cut: a hash in [0, 1) or, by time, latest first."""
        if not self.keeps_units:
            return places_of(self.seed, as_numpy(batch.column(ROW_ID)))
        column = batch.column(self.config.column)
        if self.config.kind == "group":
            hash_N = value_hashes(column) ^ np.uint64(self.seed * 0x9E3779B97F4A7C15 % 2**64)
            return as_places(mixed(hash_N))
        times = _times(column)
        if pa.types.is_timestamp(times.type):
            times = times.view(pa.int64()).fill_null(0)
        return -as_float64(times)

    def named(self, batch: pa.RecordBatch) -> pa.Array:
        """The text (N,) in the column of the split, which should be the name of one."""
        return pc.utf8_lower(pc.utf8_trim(as_texts(batch.column(self.config.column), "string"), " "))

    def assigned(self, batch: pa.RecordBatch) -> Assigned:
        """The split, fold, label and class of the rows of a batch with the row id and `columns`."""
        label_N = self.target.labels(batch)
        has_label_N, class_N = self.target.classes_of(label_N)
        place_N, stratum_N = self.places(batch), self.strata_of(class_N)
        if self.config.kind == "column":
            split_N = _codes(self.named(batch))
            if self.cuts_CS.size:
                split_N[(split_N == TRAIN) & (place_N <= self.cuts_CS[stratum_N, 0])] = VALID
        else:
            split_N = self.held_out(batch)
            for index, code in enumerate(self.shares):
                split_N[(split_N == NONE) & (place_N <= self.cuts_CS[stratum_N, index])] = code
            split_N[split_N == NONE] = TRAIN
        fold_N = None
        if self.config.folds:
            split_N = np.where(split_N == TEST, split_N, np.int8(TRAIN))
            beyond_N = (place_N[:, None] > self.fold_cuts_CS[stratum_N]).sum(axis=1)
            fold_N = np.where(split_N == TEST, -1, beyond_N).astype(np.int32)
        split_N = np.where(has_label_N, split_N, np.int8(NONE))
        return Assigned(split_N=split_N, fold_N=fold_N, label_N=label_N, class_N=class_N)

    def parts(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """The part of each row (N,): its fold, or a tenth drawn from its id; -1 outside the training rows.

        Rows that stay together share a tenth; by time, the latest rows are in the first.
        """
        assigned = self.assigned(batch)
        if assigned.fold_N is not None:
            part_N = assigned.fold_N.astype(np.int64)
        elif self.keeps_units:
            part_N = np.searchsorted(self.part_cuts_S, self.places(batch))
        else:
            seed = (self.seed + 1) % 2**31  # other tenths than those of the split
            part_N = np.floor(places_of(seed, as_numpy(batch.column(ROW_ID))) * _PARTS).astype(np.int64)
        return np.where(assigned.split_N == TRAIN, part_N, -1)


@dataclass(kw_only=True)
class SplitFindings:
    """What batches showed: the units of each class that is cut exactly, texts that name splits, counts."""

    units: dict[int, list[Units]] = field(default_factory=dict)
    named: set[str | None] = field(default_factory=set)
    classes: set[int] = field(default_factory=set)
    rows: Counter[str] = field(default_factory=Counter)

    def merge(self, other: SplitFindings) -> None:
        for code, parts in other.units.items():
            self.units.setdefault(code, []).extend(parts)
        self.named |= other.named
        self.classes |= other.classes
        self.rows.update(other.rows)

    def units_of(self, code: int) -> Units:
        """The units of a class in their order; none if it is not cut exactly."""
        if code not in self.units:
            return np.empty(0), np.empty(0, dtype=np.int64)
        place_M, rows_M = map(np.concatenate, zip(*self.units[code], strict=True))
        place_U, unit_M = np.unique(place_M, return_inverse=True)
        return place_U, np.bincount(unit_M, weights=rows_M).astype(np.int64)


def look_at_split(batches: Iterable[pa.RecordBatch], *, rule: SplitRule, weight: str | None) -> SplitFindings:
    """The second pass over a table."""
    found, strata = SplitFindings(), _exact_strata(rule)
    for batch in batches:
        label_N = rule.target.labels(batch)
        has_label_N, class_N = rule.target.classes_of(label_N)
        found.rows["labelled"] += int(has_label_N.sum())
        if weight:
            weight_N = weights_of(batch.column(weight))[has_label_N]
            found.rows["unweighted"] += int(np.isnan(weight_N).sum())
        if rule.starts:
            has_label_N &= rule.held_out(batch) == NONE
            found.classes |= set(np.unique(class_N[has_label_N]).tolist())
        is_cut_N = has_label_N
        if rule.keeps_units:
            column = batch.column(rule.config.column)
            column = _times(column) if rule.config.kind == "time" else decoded(column)
            column = column.filter(pa.array(has_label_N))
            found.rows["missing"] += pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0
        elif rule.config.kind == "column":
            named = rule.named(batch)
            found.named |= set(pc.unique(named.filter(pa.array(has_label_N))).to_pylist()[:20])
            split_N = _codes(named)
            is_cut_N = has_label_N & (split_N != TEST if rule.config.folds else split_N == TRAIN)
        place_N, stratum_N = rule.places(batch)[is_cut_N], rule.strata_of(class_N)[is_cut_N]
        for code in strata:
            units = np.unique(place_N[stratum_N == code], return_counts=True)
            if len(units[0]):
                found.units.setdefault(code, []).append(units)
    return found


def _times(column: pa.Array) -> pa.Array:
    """Numbers as they are, else timestamps; null where a text is none."""
    return numbers(column) if is_number(spark_type(column.type)) else timestamps(column)


def _exact_strata(rule: SplitRule) -> list[int]:
    """The rows of `cuts_CS` that are cut at exact shares, for which the place of each row is needed."""
    if rule.keeps_units:
        return [0]
    # Folds are even, and the places of rows that a column has chosen are not evenly spread any more.
    always = rule.config.folds is not None or rule.config.kind == "column"
    return [code for code, rows in rule.target.rows_by_class.items() if always or rows <= _EXACT_ROWS]


def fitted_rule(rule: SplitRule, found: SplitFindings) -> SplitRule:
    """The rule with its cuts. Raises `DataError`."""
    config, column = rule.config, str(rule.config.column)
    if missing := found.rows["missing"]:
        what = "time" if config.kind == "time" else "value"
        raise DataError(
            f"split.column {column!r}: {missing:,} rows have no {what} there. Fill or remove them."
        )
    unknown = [name for code, name in enumerate(rule.target.classes) if code not in found.classes]
    if rule.starts and unknown:
        raise DataError(
            f"{listed(map(repr, unknown))} of {rule.target.column!r}: only your own validation or test rows "
            "have it, so no model can learn it. Add such rows to the source, or remove them."
        )
    target = rule.target
    if isinstance(target, Targets):  # only here it is seen which rows have a label of one of them
        labelled = found.rows["labelled"]
        rule = replace(rule, target=replace(target, rows=labelled, rows_refused=target.rows - labelled))
    folds = config.folds or 0
    # Rounded, since 0.2 + 0.1 is slightly more than 0.3 and would take one more row.
    shares = [round(share, 9) for share in accumulate(rule.shares.values())]
    needs_cuts = bool(shares)
    if config.kind == "column":
        needs_cuts = not (_names_valid(found.named, column) or folds)
        shares = [round(config.valid / (1.0 - config.test), 9)]
    units = [found.units_of(code) for code in ([0] if rule.keeps_units else rule.target.rows_by_class)]
    cuts = []
    if needs_cuts and rule.keeps_units:
        *others, last_one = ["train", *(name for name, code in SPLITS.items() if code in rule.shares)]
        wanted = f"{', '.join(others)} and {last_one}"
        cuts = [_cuts_of_units(units[0], shares, column, wanted)]
    elif needs_cuts:
        for own in units:
            # The last row of each class is beyond every cut, so that the training rows include every class.
            last = own[0][-1] if len(own[0]) else math.inf
            cuts.append([min(cut, math.nextafter(last, -math.inf)) for cut in _cuts(own, shares)])
    fold_cuts, part_cuts = [], []
    if rule.keeps_units and not folds:
        training = _beyond(units[0], cuts[0][-1]) if cuts else units[0]
        part_cuts = _cuts(training, [index / _PARTS for index in range(1, _PARTS)])
    if folds:
        fold_shares = [index / folds for index in range(1, folds)]
        if cuts:
            units = [_beyond(own, own_cuts[0]) for own, own_cuts in zip(units, cuts, strict=True)]
        if rule.keeps_units:
            fold_cuts = [_cuts_of_units(units[0], fold_shares, column, f"{folds} folds, beside test,")]
        else:
            fold_cuts = [_cuts(own, fold_shares) for own in units]
    return replace(
        rule, cuts_CS=np.array(cuts), fold_cuts_CS=np.array(fold_cuts), part_cuts_S=np.array(part_cuts)
    )


def _cuts(units: Units, shares: Sequence[float]) -> list[float]:
    """The cuts at `shares` (ascending, cumulated). Where no units were read, they are even from 0 to 1."""
    place_U, rows_U = units
    if not len(place_U):
        return list(shares)
    sums_U = np.cumsum(rows_U)
    least = [max(math.ceil(share * int(sums_U[-1])), 1) for share in shares]
    return [float(place_U[end]) for end in np.searchsorted(sums_U, least)]


def _cuts_of_units(units: Units, shares: Sequence[float], column: str, wanted: str) -> list[float]:
    """As `_cuts`, with one unit or more between cuts, before the first and after the last.

    Raises `DataError` if there are too few of them; the message names what was `wanted` of `column`.
    """
    place_U, rows_U = units
    if len(place_U) <= len(shares):
        raise DataError(
            f"split.column {column!r} holds {len(place_U)} different values; {wanted} need "
            f"{len(shares) + 1}, one each. Choose a column with more of them."
        )
    cuts = _cuts(units, shares)
    if len(set(cuts)) == len(cuts) and cuts[-1] < place_U[-1]:
        return cuts
    # With a few large units, several cuts fall into one: each is as near to its share as whole units allow.
    sums = np.cumsum(rows_U).tolist()
    ends = [-1]
    for place, share in enumerate(shares):
        last = len(sums) - 1 - (len(shares) - place)
        may_end = range(ends[-1] + 1, last + 1)
        ends.append(min(may_end, key=lambda end: abs(sums[end] - share * sums[-1])))
    return [float(place_U[end]) for end in ends[1:]]


def _beyond(units: Units, cut: float) -> Units:
    place_U, rows_U = units
    return place_U[place_U > cut], rows_U[place_U > cut]


def _names_valid(found: set[str | None], column: str) -> bool:
    """Whether the column names validation rows; refuses other texts than the names of splits."""
    unknown = sorted("null" if word is None else repr(word) for word in found if word not in SPLITS)
    if unknown:
        raise DataError(
            f"split.column {column!r} holds {listed(unknown)}; it may hold only train, valid and "
            "test. Rename those values."
        )
    absent = [word for word in ("train", "test") if word not in found]
    if absent:
        raise DataError(f"split.column {column!r} marks no row as {' or '.join(absent)}. Mark some rows so.")
    return "valid" in found


def _codes(named: pa.Array) -> NDArray[np.int8]:
    """The splits (N,) of these names; `NONE` for other texts."""
    code = pc.index_in(named, value_set=pa.array(list(SPLITS))).fill_null(-1)
    return (as_numpy(code) + 1).astype(np.int8)
