"""The feature pipeline, fitted on the training rows, and the typed table for engines.

The pipeline turns the user's columns into one vector, which defines the features and their order; it is saved
as one of `pyspark.ml` (`sparkgpu.prepare.pipeline_files`). The table holds the same features in one column
each, categories as their own words and missing values as nulls, since neither trees nor networks want a
vector of doubles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparkgpu.jvm.sql import quoted
from sparkgpu.prepare.columns import IN_TABLE
from sparkgpu.prepare.levels import Levels, as_text
from sparkgpu.prepare.moments import TIME_PARTS
from sparkgpu.prepare.roles import BROKEN_TYPES, ColumnRole, safe_names
from sparkgpu.prepare.texts import finite, text_as_number
from sparkgpu.rundir.files import Record
from sparkgpu.table.schema import Feature, Reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READINGS: dict[str, Reading] = {
    "numeric": "number",
    "boolean": "truth",
    "categorical": "words",
    "timestamp": "moment",
}


class _Input(Record):
    """One feature before fitting: the SQL that makes it from the source, and its name in the pipeline."""

    column: str
    source: str
    part: str | None
    sql: str
    reading: Reading
    type: str

    @property
    def categorical(self) -> bool:
        return self.reading == "words"


class Described(Record):
    """A fitted pipeline: its inputs, the levels of those with words, the name of its vector.

    Its stages: a SQLTransformer (typed columns, parts of timestamps), a StringIndexerModel if there are
    words, a VectorAssembler.
    """

    inputs: tuple[_Input, ...]
    labels: tuple[tuple[str, ...], ...]
    vector: str
    features: tuple[Feature, ...]

    @property
    def statement(self) -> str:
        """The SQL of the first stage."""
        select = ", ".join(f"{item.sql} AS {item.column}" for item in self.inputs)
        return f"SELECT *, {select} FROM __THIS__"

    @property
    def words(self) -> tuple[str, ...]:
        """The columns of the first stage that the second one indexes."""
        return tuple(item.column for item in self.inputs if item.categorical)

    @property
    def assembled(self) -> tuple[str, ...]:
        """The columns of the vector, in its order."""
        return tuple(index_of(item.column) if item.categorical else item.column for item in self.inputs)


def describe(
    roles: Sequence[ColumnRole], types: Mapping[str, str], taken: Sequence[str], levels: Mapping[str, Levels]
) -> Described:
    """The fitted pipeline over the columns of `roles`; only the `levels` of the training rows are learned.

    `types` are Spark's types of the columns, and `taken` all names in the table. Features are in the order of
    the assembled vector. Levels are counted before, for all columns together (`sparkgpu.prepare.levels`), and
    capped; pyspark's own fit has no cap.
    """
    inputs = _inputs(roles, types, taken)
    names = safe_names([f"{item.source}_{item.part}" if item.part else item.source for item in inputs])
    features = tuple(
        Feature(
            name=name,
            source=item.source,
            part=item.part,
            kind="categorical" if item.categorical else "numeric",
            pipeline=item.column,
            levels=levels[item.source].with_other() if item.categorical else (),
            reading=item.reading,
            type=item.type,
        )
        for name, item in zip(names, inputs, strict=True)
    )
    labels = tuple(levels[item.source].levels for item in inputs if item.categorical)
    return Described(inputs=tuple(inputs), labels=labels, vector=_vector(taken), features=features)


def to_table(typed: DataFrame, features: Sequence[Feature]) -> DataFrame:
    """The table for engines: our own columns under their final names, then each feature under its safe name.

    `typed` has the columns of the pipeline's first stage. The indexer and the assembler would turn them into
    one vector of doubles, which helps neither trees (categories, missing values) nor the network. Categories
    stay words; every engine reads a category that training never showed as missing. The levels beyond the cap
    become one level when the table is written, and their mean targets are added.
    """
    from pyspark.sql import functions as F

    own = [F.col(name).alias(alias) for name, alias in IN_TABLE.items() if name in typed.columns]
    found = (F.col(feature.pipeline).alias(feature.name) for feature in features if feature.means_of is None)
    return typed.select(*own, *found)


def typed_columns(described: Described, table: DataFrame) -> DataFrame:
    """The table with the columns of the pipeline's first stage: features by their names in the pipeline."""
    from pyspark.ml.feature import SQLTransformer

    return SQLTransformer(statement=described.statement).transform(table)


def index_of(column: str) -> str:
    """The name of an indexed column."""
    return f"{column}_index"


def _inputs(roles: Sequence[ColumnRole], types: Mapping[str, str], taken: Sequence[str]) -> list[_Input]:
    # Dots and quotes in names break pipeline stages, so features are numbered inside the pipeline.
    prefix = "f"
    while any(re.fullmatch(rf"{prefix}\d+(_index)?", name) for name in taken):
        prefix = f"_{prefix}"
    inputs: list[_Input] = []
    for role in roles:
        column = quoted(role.column)
        made: list[tuple[str | None, str]]
        if role.role == "timestamp":
            moment = f"try_cast({column} AS timestamp)"
            made = [(part, TIME_PARTS[part].format(moment)) for part in role.parts]
        elif role.role == "categorical":
            made = [(None, as_text(column))]
        elif role.role == "boolean":
            made = [(None, f"cast(cast({column} AS boolean) AS int)")]
        else:
            made = [(None, _number(column, types[role.column]))]
        inputs += [
            _Input(
                column=f"{prefix}{len(inputs) + offset}",
                source=role.column,
                part=part,
                sql=sql,
                reading=_READINGS[role.role],
                type=types[role.column],
            )
            for offset, (part, sql) in enumerate(made)
        ]
    return inputs


def _number(column: str, kind: str) -> str:
    """A column as a number; values that are not finite in 32 bits count as missing (decimals always fit)."""
    if kind in BROKEN_TYPES:
        return finite(column)
    if kind == "string":
        return finite(f"({text_as_number(column)})")
    if kind == "boolean":
        return f"cast({column} AS int)"
    return f"cast({column} AS double)" if kind.startswith("decimal") else column


def _vector(columns: Sequence[str]) -> str:
    """The name of the assembled column: ``features``, unless the user's table has that column."""
    name = "features"
    while name in columns:
        name = f"assembled_{name}"
    return name
