"""Writes predictions as Parquet or CSV, batch by batch: a file is complete or absent.

N rows, C classes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.core.rundir.intervals import Conformal
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import listed
from sparkgpu.prepare.columns import BROKEN_TYPES, WHOLE_TYPES
from sparkgpu.score import conformal

PREDICTION = "prediction"
ENDS, SET = ("lower", "upper"), "prediction_set"
Decide = Callable[[NDArray[np.float64]], NDArray[np.int64]]
"""Class codes (N,) of probabilities (N, C)."""
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-]?[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?$"


def check_output(file: Path, option: str = "--out", endings: Sequence[str] = (".parquet", ".csv")) -> None:
    """Raise `ConfigError` if `file`, which an `option` of the command line names, cannot be written."""
    asked = f"{option} {file}"
    if file.suffix.lower() not in endings:
        raise ConfigError(f"{asked}: its ending must be {' or '.join(endings)}, which is its format.")
    if file.exists():
        raise ConfigError(f"{asked}: it exists. Give a new file, or remove it.")
    if not file.parent.is_dir():
        raise ConfigError(f"{asked}: there is no folder {file.parent}. Make it, or give another file.")
    if not os.access(file.parent, os.W_OK):
        raise ConfigError(f"{asked}: you may not write in {file.parent}. Give another folder.")


def prediction_columns(schema: TableSchema, sure: Conformal | None = None) -> tuple[str, ...]:
    """The names of the columns that a prediction adds."""
    added = () if sure is None else (SET,) if schema.classes else ENDS
    return (PREDICTION, *(f"probability_{name}" for name in schema.classes), *added)


def of_target(target: str, column: str) -> str:
    """The name of a column of the predictions for one of several targets."""
    return f"{target}_{column}"


def predictions(
    schema: TableSchema, values: NDArray[np.float64], decide: Decide, sure: Conformal | None = None
) -> dict[str, pa.Array]:
    """The columns of a prediction from values (N,), or from probabilities (N, C) and their class codes."""
    if not schema.classes:
        ends = () if sure is None else conformal.intervals(sure, values).T
        columns = [pa.array(np.ascontiguousarray(one), pa.float64()) for one in (values, *ends)]
    else:
        names = pa.array(typed_classes(schema).tolist())
        likely_N = pa.DictionaryArray.from_arrays(pa.array(decide(values), pa.int32()), names)
        columns = [likely_N.dictionary_decode(), *(pa.array(np.ascontiguousarray(one)) for one in values.T)]
        if sure is not None:
            held_NC = conformal.sets(sure, values)
            starts = np.concatenate([[0], held_NC.sum(axis=1).cumsum()])
            held = names.take(pa.array(np.nonzero(held_NC)[1]))
            columns.append(pa.ListArray.from_arrays(pa.array(starts, pa.int32()), held))
    return dict(zip(prediction_columns(schema, sure), columns, strict=True))


def typed_classes(schema: TableSchema) -> NDArray[Any]:
    """The classes with the type of the target: numbers, true and false, or texts."""
    found = typed(schema.classes, schema.target_type)
    return np.array(found, dtype=object if isinstance(found[0], str) else None)


def typed(texts: Iterable[str], kind: str | None) -> list[Any]:
    """Texts of values of Spark's type `kind` as numbers, true and false, or texts."""
    if kind in WHOLE_TYPES:
        return [int(text) for text in texts]
    if kind in BROKEN_TYPES:
        return [float(text) for text in texts]
    return [text == "true" for text in texts] if kind == "boolean" else list(texts)


class PredictionFile:
    """The file of predictions; it gets its name when the block ends without an error."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._temporary = file.with_name(f".{file.name}.{os.getpid()}")
        self._written: pa.Schema | None = None
        self._writer: pq.ParquetWriter | pyarrow.csv.CSVWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
        if kind is None:
            self._temporary.replace(self._file)
        else:
            self._temporary.unlink(missing_ok=True)

    def write(self, added: Mapping[str, pa.Array], beside: pa.RecordBatch | None = None) -> None:
        """Add rows: the columns `added`, behind those of `beside`.

        Raises `DataError` if one of these has the name of one that is added.
        """
        names, arrays = [*added], [*added.values()]
        if beside is not None:
            taken = [name for name in beside.schema.names if name in added]
            if taken:
                raise DataError(
                    f"--keep-columns: the table has columns {listed(map(repr, taken))}, too. Rename them."
                )
            names, arrays = [*beside.schema.names, *names], [*beside.columns, *arrays]
        is_csv = self._file.suffix.lower() == ".csv"
        if is_csv:
            names = _without_formulas(pa.array(names)).to_pylist()
            arrays = [_without_formulas(column) for column in arrays]
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        if self._writer is None:
            kind = pyarrow.csv.CSVWriter if is_csv else pq.ParquetWriter
            self._writer, self._written = kind(str(self._temporary), batch.schema), batch.schema
        self._writer.write_batch(batch.cast(self._written))  # another file may have other types


def _without_formulas(column: pa.Array) -> pa.Array:
    """Texts that a spreadsheet would run as formulas behind an apostrophe (OWASP, "CSV Injection").

    Lists, which CSV has not, become JSON.
    """
    if pa.types.is_list(column.type):
        return pa.array([json.dumps(one, ensure_ascii=False) for one in column.to_pylist()])
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    is_number_N = pc.match_substring_regex(column, _NUMBER)
    is_formula_N = pc.and_not(pc.match_substring_regex(column, _FORMULA), is_number_N)
    return pc.if_else(is_formula_N, pc.binary_join_element_wise("'", column, ""), column)
