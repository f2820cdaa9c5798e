"""Assigns each row to training, validation or test, and to a fold.

A row's place in [0, 1) is a hash of the seed and its row id, so any distribution of the same rows over files
and tasks gives the same split. Up to `_EXACT_ROWS` rows, each class (or the whole table, without classes) is
cut at exact shares, and always into folds. Larger ones are cut at the share of the hash itself, which is even
enough (for 100,000 rows, one standard error of a share of .15 is .001).

N rows of a batch, U units (groups or timestamps that stay together).
"""

from __future__ import annotations

import math
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
from sparkgpu.prepare.column_types import TIME_TYPES, is_number, spark_type
from sparkgpu.prepare.column_values import as_float64, as_texts, decoded, numbers, timestamps
from sparkgpu.prepare.columns import ROW_ID
from sparkgpu.prepare.hashes import value_hashes
from sparkgpu.prepare.labels import weights_of
from sparkgpu.prepare.places import as_places, mixed, places_of
from sparkgpu.prepare.target import Target

NONE, TRAIN, VALID, TEST = 0, 1, 2, 3
SPLITS = {"train": TRAIN, "valid": VALID, "test": TEST}

_EXACT_ROWS = 100_000

Cuts = Mapping[int, Sequence[float]]
"""By class (only 0 if there are none), the place up to which rows belong to each share."""
Places = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """The split of each row (N,), `NONE` without a target; its fold, -1 without one; its label."""

    split_N: NDArray[np.int8]
    fold_N: NDArray[np.int32] | None
    label_N: NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class SplitRule:
    """How rows get their split: a pure function of row id, target and the column of the split.

    `cuts` part test and validation from the rest; in a split by column only validation from training rows,
    where the column names no validation rows (`names_valid`). `fold_cuts` part what is not test. From the row
    ids `starts` on, rows are validation or test rows of the user's own.
    """

    config: SplitConfig
    seed: int
    target: Target
    names_valid: bool = True
    cuts: Cuts = field(default_factory=dict)
    fold_cuts: Cuts = field(default_factory=dict)
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
    def columns(self) -> tuple[str, ...]:
        """The columns that `assigned` needs beside the row id."""
        return tuple(name for name in {self.target.column: 0, self.config.column: 0} if name is not None)

    @property
    def keeps_units(self) -> bool:
        """Whether equal values of the column stay together; classes then do not matter."""
        return self.config.kind in ("group", "time")

    @property
    def exact_classes(self) -> frozenset[int]:
        """The classes that are cut at exact shares, for which the place of each row is needed."""
        # Folds are even, and the places of rows that a column has chosen are not evenly spread any more.
        always = self.config.folds is not None or self.config.kind == "column"
        return frozenset(
            code for code, rows in self.target.rows_by_class.items() if always or rows <= _EXACT_ROWS
        )

    def places(self, batch: pa.RecordBatch) -> Places:
        """Where each row (N,) lies on the line that is cut: a hash in [0, 1) or, by time, latest first."""
        if not self.keeps_units:
            return places_of(self.seed, as_numpy(batch.column(ROW_ID)))
        column = batch.column(self.config.column)
        if self.config.kind == "group":
            hash_N = value_hashes(column) ^ np.uint64(self.seed * 0x9E3779B97F4A7C15 % 2**64)
            return as_places(mixed(hash_N))
        if is_number(spark_type(column.type)):
            return -as_float64(numbers(column))
        return -as_numpy(timestamps(column).view(pa.int64()).fill_null(0)).astype(np.float64)

    def named(self, batch: pa.RecordBatch) -> pa.Array:
        """The text (N,) in the column of the split, which should be the name of one."""
        return pc.utf8_lower(pc.utf8_trim(as_texts(batch.column(self.config.column), "string"), " "))

    def assigned(self, batch: pa.RecordBatch) -> Assigned:
        """The split, fold and label of the rows of a batch with the row id and `columns`."""
        label_N = self.target.labels(batch.column(self.target.column))
        has_label_N, class_N = self.target.classes_of(label_N)
        if self.keeps_units:
            class_N = np.zeros_like(class_N)
        place_N = self.places(batch)
        if self.config.kind == "column":
            split_N = _codes(self.named(batch))
            if not self.names_valid and not self.config.folds:
                split_N[(split_N == TRAIN) & _within(place_N, class_N, self.cuts, 0)] = VALID
        else:
            split_N = self.held_out(batch)
            for index, code in enumerate(self.shares):
                split_N[(split_N == NONE) & _within(place_N, class_N, self.cuts, index)] = code
            split_N[split_N == NONE] = TRAIN
        fold_N = None
        if self.config.folds:
            split_N = np.where(split_N == TEST, split_N, np.int8(TRAIN))
            beyond = [
                ~_within(place_N, class_N, self.fold_cuts, index) for index in range(self.config.folds - 1)
            ]
            fold_N = np.where(split_N == TEST, -1, np.sum(beyond, axis=0)).astype(np.int32)
        return Assigned(split_N=np.where(has_label_N, split_N, np.int8(NONE)), fold_N=fold_N, label_N=label_N)


@dataclass(kw_only=True)
class SplitFindings:
    """What batches showed: the places of rows by class, where cuts are exact; splits that are named.

    Where units stay together, `places` of class 0 are those of units, with the number of rows in each.
    """

    places: dict[int, list[Places]] = field(default_factory=dict)
    unit_rows: list[NDArray[np.int64]] = field(default_factory=list)
    named: set[str | None] = field(default_factory=set)
    classes: set[int] = field(default_factory=set)
    nulls: int = 0
    good_weights: int = 0
    positive_weights: int = 0

    def merge(self, other: SplitFindings) -> None:
        for code, parts in other.places.items():
            self.places.setdefault(code, []).extend(parts)
        self.unit_rows += other.unit_rows
        self.named |= other.named
        self.classes |= other.classes
        self.nulls += other.nulls
        self.good_weights += other.good_weights
        self.positive_weights += other.positive_weights

    def places_of(self, code: int) -> Places:
        """The places of a class (M,) in their order."""
        return np.sort(np.concatenate([np.empty(0), *self.places.get(code, ())]))

    def units(self) -> tuple[Places, NDArray[np.int64]]:
        """The place (U,) and the rows (U,) of each unit."""
        place_U, unit_M = np.unique(np.concatenate(self.places.get(0, [np.empty(0)])), return_inverse=True)
        rows_M = np.concatenate([np.empty(0), *self.unit_rows])
        return place_U, np.bincount(unit_M, weights=rows_M, minlength=len(place_U)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class LookAtSplit:
    """The second pass over a table: called with batches of its rows, it returns their `SplitFindings`."""

    rule: SplitRule
    weight: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.rule.columns, *([self.weight] if self.weight else [])]))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> SplitFindings:
        found, rule = SplitFindings(), self.rule
        for batch in batches:
            label_N = rule.target.labels(batch.column(rule.target.column))
            has_label_N, class_N = rule.target.classes_of(label_N)
            if self.weight:
                weight_N = weights_of(batch.column(self.weight))[has_label_N]
                found.good_weights += int(np.isfinite(weight_N).sum())
                found.positive_weights += int((weight_N > 0).sum())
            place_N = rule.places(batch)
            if rule.starts:
                has_label_N &= rule.held_out(batch) == NONE
                found.classes |= set(np.unique(class_N[has_label_N]).tolist())
            if rule.keeps_units:
                column = batch.column(rule.config.column)
                found.nulls += _num_missing(column.filter(pa.array(has_label_N)))
                place_U, rows_U = np.unique(place_N[has_label_N], return_counts=True)
                found.places.setdefault(0, []).append(place_U)
                found.unit_rows.append(rows_U)
                continue
            is_train_N = has_label_N
            if rule.config.kind == "column":
                named = rule.named(batch)
                found.named |= set(pc.unique(named.filter(pa.array(has_label_N))).to_pylist()[:20])
                split_N = _codes(named)
                is_train_N = has_label_N & (split_N != TEST if rule.config.folds else split_N == TRAIN)
            for code in rule.exact_classes:
                is_class_N = is_train_N & (class_N == code)
                if is_class_N.any():
                    found.places.setdefault(code, []).append(place_N[is_class_N])
        return found


def fitted_rule(rule: SplitRule, found: SplitFindings) -> SplitRule:
    """The rule with its cuts. Raises `DataError`."""
    config, column = rule.config, str(rule.config.column)
    if found.nulls:
        raise DataError(
            f"split.column {column!r}: {found.nulls:,} rows have no value there. Fill or remove them."
        )
    unknown = [name for code, name in enumerate(rule.target.classes) if code not in found.classes]
    if rule.starts and unknown:
        raise DataError(
            f"{listed(map(repr, unknown))} of {rule.target.column!r}: only your own validation or test rows "
            "have it, so no model can learn it. Add such rows to the source, or remove them."
        )
    # Rounded, since 0.2 + 0.1 is slightly more than 0.3 and would take one more row.
    shares = [round(share, 9) for share in accumulate(rule.shares.values())]
    fold_shares = [index / config.folds for index in range(1, config.folds)] if config.folds else []
    if rule.keeps_units:
        place_U, rows_U = found.units()
        *others, last = ["train", *(name for name, code in SPLITS.items() if code in rule.shares)]
        wanted = f"{', '.join(others)} and {last}"
        unit_cuts = _unit_cuts(place_U, rows_U, shares, column, wanted) if shares else []
        rule = replace(rule, cuts={0: unit_cuts})
        if config.folds:
            rest_U = place_U > (unit_cuts[0] if unit_cuts else -math.inf)
            wanted = f"{config.folds} folds, beside test,"
            unit_cuts = _unit_cuts(place_U[rest_U], rows_U[rest_U], fold_shares, column, wanted)
            rule = replace(rule, fold_cuts={0: unit_cuts})
        return rule
    if config.kind == "column":
        rule = replace(rule, names_valid=_check_names(found.named, column))
        shares = [round(config.valid / (1.0 - config.test), 9)]
    places = {code: found.places_of(code) for code in rule.target.rows_by_class}
    cuts = {}
    if config.kind != "column" or not (rule.names_valid or config.folds):
        # The last row of each class is beyond every cut, so that the training rows include every class.
        cuts = {
            code: [min(cut, _before(place_M)) for cut in _cuts(shares, place_M)]
            for code, place_M in places.items()
        }
    fold_cuts = {}
    if config.folds:
        rest = {
            code: place_M[place_M > cuts[code][0]] if cuts and shares else place_M
            for code, place_M in places.items()
        }
        fold_cuts = {code: _cuts(fold_shares, place_M) for code, place_M in rest.items()}
    return replace(rule, cuts=cuts, fold_cuts=fold_cuts)


def _cuts(shares: Sequence[float], place_M: Places) -> list[float]:
    """The cuts at `shares` (ascending, cumulated) of a class with these places, in their order.

    Where no places were read, they are evenly spread from 0 to 1.
    """
    if not len(place_M):
        return list(shares)
    return [float(place_M[max(math.ceil(share * len(place_M)) - 1, 0)]) for share in shares]


def _before(place_M: Places) -> float:
    """The last cut before the last place."""
    return math.nextafter(float(place_M[-1]), -math.inf) if len(place_M) else math.inf


def _unit_cuts(
    place_U: Places, rows_U: NDArray[np.int64], shares: Sequence[float], column: str, wanted: str
) -> list[float]:
    """The cuts at `shares` between units, with at least one of them on each side of each cut.

    Raises `DataError` if there are too few of them; the message names what was `wanted` of `column`.
    """
    total = int(rows_U.sum())
    sums_U = np.cumsum(rows_U)
    if len(place_U):
        ends = [int(np.searchsorted(sums_U, max(math.ceil(share * total), 1))) for share in shares]
        if len(set(ends)) == len(ends) and ends[-1] < len(place_U) - 1:
            return [float(place_U[end]) for end in ends]
    # With a few large units, several cuts fall into one unit, so distribute whole units instead.
    if len(place_U) <= len(shares):
        raise DataError(
            f"split.column {column!r} holds {len(place_U)} different values; {wanted} need "
            f"{len(shares) + 1}, one each. Choose a column with more of them."
        )
    return [float(place_U[end - 1]) for end in share_out(rows_U.tolist(), shares)]


def share_out(rows: Sequence[int], shares: Sequence[float]) -> list[int]:
    """The number of units before the cut at each share (ascending); each unit holds `rows` rows.

    Each cut is as near to its share as whole units allow. At least one unit is between cuts, before the first
    and after the last.
    """
    sums = list(accumulate(rows))
    ends: list[int] = []
    for position, share in enumerate(shares):
        first = ends[-1] + 1 if ends else 1
        last = len(rows) - (len(shares) - position)
        ends.append(min(range(first, last + 1), key=lambda end: abs(sums[end - 1] - share * sums[-1])))
    return ends


def check_split_column(config: SplitConfig, types: Mapping[str, str]) -> None:
    """Refuse a column whose type cannot split the rows in the way that was asked for."""
    if config.column is None or config.kind == "random":
        return
    kind = types[config.column]
    if config.kind == "column":
        fits, fault = (
            kind == "string",
            "; it may hold only the texts train, valid and test. Name another column.",
        )
    elif config.kind == "group":
        fits = is_number(kind) or kind in ("boolean", "string", *TIME_TYPES)
        fault = ", which cannot name groups. Choose another."
    else:
        fits = is_number(kind) or kind in TIME_TYPES
        fault = "; a split by time needs a date, a timestamp or a number. Convert it."
    if not fits:
        raise DataError(f"split.column {config.column!r} is of type {kind}{fault}")


def _check_names(found: set[str | None], column: str) -> bool:
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


def _num_missing(column: pa.Array) -> int:
    column = decoded(column)
    nulls = int(column.null_count)
    if pa.types.is_floating(column.type):
        nulls += int(pc.sum(pc.is_nan(column)).as_py() or 0)
    return nulls


def _within(place_N: Places, class_N: NDArray[np.int64], cuts: Cuts, index: int) -> NDArray[np.bool_]:
    """Whether a row's place is within the share at `index`."""
    limits = np.array([cuts[code][index] for code in range(len(cuts))])
    return place_N <= limits[class_N]
