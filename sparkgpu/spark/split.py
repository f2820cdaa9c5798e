"""Says for each row whether it is trained on, validated on or tested on.

A row's place is decided by a hash of its row id and the seed, never by where Spark happens to hold it: any
partitioning of the same files gives the same split. Classes (and, without classes, the whole table) are
cut at exact shares up to `_EXACT_ROWS` rows; beyond that the hash is even enough to be cut at the share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkgpu.config import SplitConfig
from sparkgpu.errors import DataError, listed
from sparkgpu.spark.columns import FOLD, LABEL, ROW_ID, SPLIT, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PLACE = "__sparkgpu_place"
"""What the shares are cut on: a hash in [0, 1), or for a split by time the moment, latest first."""

_EXACT_ROWS = 400_000
_ACCURACY = 10_000_000  # percentile_approx is exact while rows < accuracy / 20
_WORDS = ("train", "valid", "test")


def with_split(
    table: DataFrame, config: SplitConfig, *, seed: int, rows: int, class_rows: tuple[int, ...]
) -> DataFrame:
    """Add the split (train, valid, test), and the fold where folds are asked for.

    `table` holds row id and label beside its own columns; `rows` and `class_rows` count the usable rows,
    in all and by class. With folds, every row that is not tested on is in split train and carries its
    fold's number; there is no split valid. Raises `DataError` when the column that splits cannot do it.
    """
    from pyspark.sql import functions as F

    placed = table.withColumn(PLACE, _place(table, config, seed))
    stratified = class_rows if config.kind in ("random", "column") else ()
    if config.kind == "column":
        placed, complete = _by_words(placed, config)
        if not complete and not config.folds:
            share = config.valid / (1.0 - config.test)
            cuts = _cuts(placed.where(F.col(SPLIT) == "train"), [share], stratified, None)
            is_valid = (F.col(SPLIT) == "train") & _within(cuts, 0)
            placed = placed.withColumn(SPLIT, F.when(is_valid, "valid").otherwise(F.col(SPLIT)))
    else:
        hashed_rows = rows if config.kind == "random" else None
        cuts = _cuts(placed, [config.test, config.test + config.valid], stratified, hashed_rows)
        placed = placed.withColumn(
            SPLIT, F.when(_within(cuts, 0), "test").when(_within(cuts, 1), "valid").otherwise("train")
        )
    if not config.folds:
        return placed.drop(PLACE)
    placed = placed.withColumn(SPLIT, F.when(F.col(SPLIT) == "test", "test").otherwise("train"))
    shares = [index / config.folds for index in range(1, config.folds)]
    cuts = _cuts(placed.where(F.col(SPLIT) == "train"), shares, stratified, None)
    beyond = [F.when(_within(cuts, index), 0).otherwise(1) for index in range(len(shares))]
    return placed.withColumn(FOLD, sum(beyond, F.lit(0)).cast("int")).drop(PLACE)


def _place(table: DataFrame, config: SplitConfig, seed: int) -> Column:
    from pyspark.sql import functions as F

    if config.kind in ("random", "column"):
        return _unit(F.xxhash64(F.lit(seed), F.col(ROW_ID)))
    assert config.column is not None
    column = F.col(quoted(config.column))
    nulls = table.where(column.isNull()).count()
    if nulls:
        raise DataError(
            f"split.column {config.column!r}: {nulls:,} rows have no value there. Fill or remove them."
        )
    if config.kind == "group":
        groups = table.select(column).distinct().limit(3).count()
        if groups < 3:
            raise DataError(
                f"split.column {config.column!r} holds {groups} groups; train, valid and test need one each. "
                "Choose a column with more groups."
            )
        return _unit(F.xxhash64(F.lit(seed), column))
    kind = dict(table.dtypes)[config.column]
    if kind in ("string", "boolean") or kind.startswith(("array", "map", "struct", "binary")):
        raise DataError(
            f"split.column {config.column!r} is of type {kind}; a split by time needs a date, a timestamp or "
            "a number. Convert it."
        )
    moment = column.cast("timestamp") if kind in ("date", "timestamp_ntz") else column
    return -moment.cast("double")


def _unit(hashed: Column) -> Column:
    """A 64-bit hash as a number in [0, 1); 53 bits are what a double holds."""
    from pyspark.sql import functions as F

    return F.shiftrightunsigned(hashed, 11).cast("double") / F.lit(float(2**53))


def _by_words(table: DataFrame, config: SplitConfig) -> tuple[DataFrame, bool]:
    """The split as the column names it, and whether it names rows to validate on."""
    from pyspark.sql import functions as F

    assert config.column is not None
    named = table.withColumn(SPLIT, F.lower(F.trim(F.col(quoted(config.column)).cast("string"))))
    found = {row[0] for row in named.select(SPLIT).distinct().limit(20).collect()}
    unknown = [repr(word) for word in found if word not in _WORDS]
    if unknown:
        raise DataError(
            f"split.column {config.column!r} holds {listed(unknown)}; it may hold only train, valid and "
            "test. Rename those values."
        )
    absent = [word for word in ("train", "test") if word not in found]
    if absent:
        raise DataError(
            f"split.column {config.column!r} marks no row as {' or '.join(absent)}. Mark some rows so."
        )
    return named, "valid" in found


def _cuts(
    table: DataFrame, shares: list[float], class_rows: tuple[int, ...], hashed_rows: int | None
) -> dict[int | None, list[float]]:
    """By class (None: the table as a whole), the place up to which rows belong to each share.

    `hashed_rows` is the number of rows of a table whose places are hashes: beyond `_EXACT_ROWS` they need
    not be looked at.
    """
    from pyspark.sql import functions as F

    exact = F.percentile_approx(PLACE, shares, _ACCURACY)
    if not class_rows:
        if hashed_rows is not None and hashed_rows > _EXACT_ROWS:
            return {None: shares}
        row = table.agg(exact).first()
        return {None: row[0] if row and row[0] else shares}
    cuts: dict[int | None, list[float]] = dict.fromkeys(range(len(class_rows)), shares)
    few = [code for code, rows in enumerate(class_rows) if rows <= _EXACT_ROWS]
    if few:
        wanted = table if len(few) == len(class_rows) else table.where(F.col(LABEL).isin(few))
        cuts.update(dict(wanted.groupBy(LABEL).agg(exact).collect()))
    return cuts


def _within(cuts: dict[int | None, list[float]], index: int) -> Column:
    """Whether a row's place is within the share at `index`."""
    from pyspark.sql import functions as F

    if None in cuts:
        return F.col(PLACE) <= F.lit(cuts[None][index])
    limits = F.array(*(F.lit(cuts[code][index]) for code in range(len(cuts))))
    return F.col(PLACE) <= F.element_at(limits, F.col(LABEL) + 1)
