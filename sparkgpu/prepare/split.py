"""Assigns each row to training, validation or test.

A row's place comes from a hash of its row id and the seed, not from Spark's partitions: any partitioning of
the same files gives the same split. Up to `_EXACT_ROWS` rows, each class (or the whole table, without
classes) is cut at exact shares. Larger tables are cut at the share of the hash itself, which is even enough
(for 100,000 rows, one standard error of a share of .15 is .001).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sparkgpu.config.keys import SplitConfig
from sparkgpu.errors import DataError
from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.columns import FOLD, LABEL, ROW_ID, SPLIT
from sparkgpu.prepare.parquet_rows import ParquetRows
from sparkgpu.prepare.places import place
from sparkgpu.prepare.roles import BROKEN_TYPES
from sparkgpu.words import listed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PLACE = "__sparkgpu_place"
"""The shares are cut on this: a hash in [0, 1) or, for a split by time, the moment, latest first."""

_EXACT_ROWS = 100_000
_ACCURACY = 10_000_000  # percentile_approx is exact while rows < accuracy / 20
_WORDS = ("train", "valid", "test")


TRAIN, VALID, TEST = 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class RowSplit:
    """The split of each row by row id (0: the row has no target), and the code of its class (-1)."""

    split_N: NDArray[np.int8]
    code_N: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Split:
    """The table with its split. What is known without Spark: the training rows by row id, and all splits."""

    table: DataFrame
    train_N: NDArray[np.bool_] | None = None
    rows: RowSplit | None = None


def with_split(
    table: DataFrame,
    config: SplitConfig,
    *,
    seed: int,
    rows: int,
    class_rows: tuple[int, ...],
    by_id: ParquetRows | None = None,
) -> Split:
    """Add the split (train, valid, test), and the fold if folds are asked for.

    `table` holds row id and label beside its own columns. `rows` and `class_rows` count the usable rows, in
    all and by class. With folds, every row outside the test split is in split train with its fold's number,
    and there is no split valid. `by_id` holds pyarrow's result for the same rows, which saves the Spark job
    of a random split. Raises `DataError` if `split.column` cannot be used.
    """
    from pyspark.sql import functions as F

    placed = table.withColumn(PLACE, _place(table, config, seed))
    stratified = class_rows if config.kind in ("random", "column") else ()
    # Rows of one group or moment stay together, so the cuts fall between whole units.
    units = config.column if config.kind in ("group", "time") else None
    train_N: NDArray[np.bool_] | None = None
    split_rows: RowSplit | None = None
    if config.kind == "column" and config.column is not None:
        placed, complete = _by_words(placed, config.column)
        if not complete and not config.folds:
            share = round(config.valid / (1.0 - config.test), 9)
            named_train = placed.where(F.col(SPLIT) == "train")
            cuts = _cuts([share], stratified, partial(_exact_cuts, named_train))
            is_valid = (F.col(SPLIT) == "train") & _within(cuts, 0)
            placed = placed.withColumn(SPLIT, F.when(is_valid, "valid").otherwise(F.col(SPLIT)))
    else:
        shares = _shares(config)
        if units:
            wanted = "train and test" if config.folds else "train, valid and test"
            cuts = _unit_cuts(placed, shares, units, wanted)
        else:
            exact = by_id.cuts if by_id else partial(_exact_cuts, placed)
            cuts = _cuts(shares, stratified, exact, hashed_rows=rows)
            if by_id:
                train_N = _train_rows(by_id, cuts)
                split_rows = _split_rows(by_id, cuts, train_N) if not config.folds else None
        split = F.when(_within(cuts, 0), "test")
        if not config.folds:
            split = split.when(_within(cuts, 1), "valid")
        placed = placed.withColumn(SPLIT, split.otherwise("train"))
    if not config.folds:
        return Split(table=placed.drop(PLACE), train_N=train_N, rows=split_rows)
    placed = placed.withColumn(SPLIT, F.when(F.col(SPLIT) == "test", "test").otherwise("train"))
    shares = [index / config.folds for index in range(1, config.folds)]
    rest = placed.where(F.col(SPLIT) == "train")
    cuts = (
        _unit_cuts(rest, shares, units, f"{config.folds} folds, beside test,")
        if units
        else _cuts(shares, stratified, partial(_exact_cuts, rest), last_kept=False)
    )
    beyond = [F.when(_within(cuts, index), 0).otherwise(1) for index in range(len(shares))]
    placed = placed.withColumn(FOLD, sum(beyond, F.lit(0)).cast("int"))
    return Split(table=placed.drop(PLACE), train_N=train_N)


def split_by_id(
    config: SplitConfig, by_id: ParquetRows, *, rows: int, class_rows: tuple[int, ...]
) -> tuple[NDArray[np.bool_], RowSplit]:
    """The training rows (N,) and all splits of a random split without folds, without Spark."""
    cuts = _cuts(_shares(config), class_rows, by_id.cuts, hashed_rows=rows)
    train_N = _train_rows(by_id, cuts)
    return train_N, _split_rows(by_id, cuts, train_N)


def _shares(config: SplitConfig) -> list[float]:
    # Rounded, since 0.2 + 0.1 is slightly more than 0.3 and would take one more row.
    return [config.test] if config.folds else [config.test, round(config.test + config.valid, 9)]


def _train_rows(by_id: ParquetRows, cuts: _Cuts) -> NDArray[np.bool_]:
    return by_id.beyond([cuts[code][-1] for code in sorted(cuts)])


def _split_rows(by_id: ParquetRows, cuts: _Cuts, train_N: NDArray[np.bool_]) -> RowSplit:
    beyond_test_N = by_id.beyond([cuts[code][0] for code in sorted(cuts)])
    train, valid, test = map(np.int8, (TRAIN, VALID, TEST))
    split_N = np.where(train_N, train, np.where(beyond_test_N, valid, test))
    split_N[by_id.code_N < 0] = 0
    return RowSplit(split_N=split_N, code_N=by_id.code_N)


def _place(table: DataFrame, config: SplitConfig, seed: int) -> Column:
    from pyspark.sql import functions as F

    if config.kind in ("random", "column") or config.column is None:
        return place(seed, F.col(ROW_ID))
    column = F.col(quoted(config.column))
    kind = dict(table.dtypes)[config.column]
    nulls = table.where(
        column.isNull() | F.isnan(column) if kind in BROKEN_TYPES else column.isNull()
    ).count()
    if nulls:
        raise DataError(
            f"split.column {config.column!r}: {nulls:,} rows have no value there. Fill or remove them."
        )
    if config.kind == "group":
        if "map<" in kind:
            raise DataError(
                f"split.column {config.column!r} is of type {kind}, which cannot name groups. Choose another."
            )
        return place(seed, column)
    if kind in ("string", "boolean") or kind.startswith(("array", "map", "struct", "binary")):
        raise DataError(
            f"split.column {config.column!r} is of type {kind}; a split by time needs a date, a timestamp or "
            "a number. Convert it."
        )
    moment = column.cast("timestamp") if kind in ("date", "timestamp_ntz") else column
    return -moment.cast("double")


def _by_words(table: DataFrame, column: str) -> tuple[DataFrame, bool]:
    """The split named by the column, and whether it names validation rows."""
    from pyspark.sql import functions as F

    named = table.withColumn(SPLIT, F.lower(F.trim(F.col(quoted(column)).cast("string"))))
    found = {row[0] for row in named.select(SPLIT).distinct().limit(20).collect()}
    unknown = sorted("null" if word is None else repr(word) for word in found if word not in _WORDS)
    if unknown:
        raise DataError(
            f"split.column {column!r} holds {listed(unknown)}; it may hold only train, valid and "
            "test. Rename those values."
        )
    absent = [word for word in ("train", "test") if word not in found]
    if absent:
        raise DataError(f"split.column {column!r} marks no row as {' or '.join(absent)}. Mark some rows so.")
    return named, "valid" in found


_Cuts = dict[int, list[float]]
"""By class (only 0 if there are none), the place up to which rows belong to each share."""

_FindCuts = Callable[[Sequence[float], Sequence[int] | None], Iterable[tuple[int, Sequence[float], float]]]
"""For shares and classes (None: the whole table): by class, the cuts and the last place."""


def _cuts(
    shares: list[float],
    class_rows: tuple[int, ...],
    exact: _FindCuts,
    *,
    hashed_rows: int | None = None,
    last_kept: bool = True,
) -> _Cuts:
    """The cuts at `shares` (ascending, cumulated) of each class, or of the whole table.

    `exact` finds them. `hashed_rows` is given if the table is whole and its places are hashes, which are
    evenly spread: above `_EXACT_ROWS` rows they need not be read. With `last_kept` the last row of each class
    is beyond every cut, so that the training rows include every class, even the smallest.
    """
    cuts: _Cuts = dict.fromkeys(range(len(class_rows) or 1), shares)
    of_each = class_rows or (hashed_rows or 0,)
    few = [code for code, rows in enumerate(of_each) if hashed_rows is None or rows <= _EXACT_ROWS]
    if not few:
        return cuts
    for code, found, last in exact(shares, few if class_rows else None):
        below = math.nextafter(last, -math.inf)
        cuts[code] = [min(cut, below) if last_kept else cut for cut in found]
    return cuts


def _exact_cuts(
    table: DataFrame, shares: Sequence[float], codes: Sequence[int] | None
) -> list[tuple[int, Sequence[float], float]]:
    from pyspark.sql import functions as F

    found = (F.percentile_approx(PLACE, list(shares), _ACCURACY), F.max(PLACE))
    if codes is None:
        return [(0, *row) for row in table.agg(*found).collect() if row[0]]
    wanted = table.where(f"{LABEL} IN ({', '.join(map(str, codes))})")
    return [(row[0], row[1], row[2]) for row in wanted.groupBy(LABEL).agg(*found).collect()]


def _unit_cuts(table: DataFrame, shares: list[float], column: str, wanted: str) -> _Cuts:
    """The cuts at `shares` between groups or moments, with at least one of them on each side of each cut.

    Raises `DataError` if there are too few of them; the message names what was `wanted` of `column`.
    """
    from pyspark.sql import functions as F

    row = table.agg(F.percentile_approx(PLACE, shares, _ACCURACY), F.max(PLACE)).first()
    places, last = row if row and row[0] else ([], None)
    if places and len(set(places)) == len(places) and places[-1] < last:
        return {0: places}
    # With a few large units, several cuts fall into one unit, so distribute whole units instead.
    units = sorted(tuple(unit) for unit in table.groupBy(PLACE).count().collect())
    if len(units) <= len(shares):
        raise DataError(
            f"split.column {column!r} holds {len(units)} different values; {wanted} need "
            f"{len(shares) + 1}, one each. Choose a column with more of them."
        )
    ends = share_out([rows for _, rows in units], shares)
    return {0: [units[end - 1][0] for end in ends]}


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


def _within(cuts: _Cuts, index: int) -> Column:
    """Whether a row's place is within the share at `index`."""
    from pyspark.sql import functions as F

    if len(cuts) == 1:
        return F.col(PLACE) <= F.lit(cuts[0][index])
    limits = F.array(*(F.lit(cuts[code][index]) for code in range(len(cuts))))
    return F.col(PLACE) <= F.element_at(limits, F.col(LABEL) + 1)
