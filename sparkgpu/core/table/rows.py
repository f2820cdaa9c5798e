"""Reads the prepared table into arrays. pyarrow and numpy only.

Rows always come in ascending order of their ids, for any distribution over files. Features are decoded batch
by batch directly into one float32 and one int32 matrix, so a table is never in memory twice.

N rows, F numeric features, K categorical features, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import FOLD, LABEL, ROW_ID, WEIGHT, SplitName, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 16_384  # a batch and its rows of the matrices fit the cache


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of one split. Labels are class codes (int64) or values (float64); missing is NaN or code -1."""

    row_id_N: NDArray[np.int64]
    label_N: NDArray[Any]
    weight_N: NDArray[np.float32] | None
    numeric_NF: NDArray[np.float32]
    codes_NK: NDArray[np.int32]

    def part(self, which: slice | NDArray[np.int64]) -> Rows:
        """Some of the rows; a slice copies nothing."""
        return Rows(
            row_id_N=self.row_id_N[which],
            label_N=self.label_N[which],
            weight_N=None if self.weight_N is None else self.weight_N[which],
            numeric_NF=self.numeric_NF[which],
            codes_NK=self.codes_NK[which],
        )


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts of one table, of which there is at least one, in their order."""
    weights = [part.weight_N for part in parts if part.weight_N is not None]
    return Rows(
        row_id_N=np.concatenate([part.row_id_N for part in parts]),
        label_N=np.concatenate([part.label_N for part in parts]),
        weight_N=np.concatenate(weights) if weights else None,
        numeric_NF=np.concatenate([part.numeric_NF for part in parts]),
        codes_NK=np.concatenate([part.codes_NK for part in parts]),
    )


def read_rows(
    paths: RunPaths,
    schema: TableSchema,
    split: SplitName,
    *,
    fold: int | None = None,
    features: bool = True,
    every: int = 1,
) -> Rows:
    """The rows of a split; with `fold`, train and valid are selected from split train by their fold.

    Of those only every `every`-th, from the first on; the others take no memory. Features are in the schema's
    order, numeric and categorical separately; with `features=False` both matrices have no columns. Raises
    `DataError` if the table holds no such rows or cannot be read.
    """
    import pyarrow as pa

    folded = fold is not None and split != "test"
    assert not folded or schema.folds is not None
    folder = paths.split("train" if folded else split)
    try:
        files = files_of(folder)
        own = _read_own(files, schema, folded=folded) if files else {}
        kept_N = np.arange(len(own[ROW_ID])) if files else np.empty(0, dtype=np.int64)
        if folded and files:
            kept_N = np.flatnonzero((own[FOLD] == fold) == (split == "valid"))
        if len(kept_N) == 0:
            which = f"split {split}" if fold is None else f"split {split} of fold {fold}"
            raise DataError(f"{paths.table}: the prepared table holds no rows of {which}. Prepare it again.")
        row_id_N = own[ROW_ID][kept_N]
        if not _ascends(row_id_N):
            kept_N = kept_N[np.argsort(row_id_N, kind="stable")]
        kept_N = kept_N[::every]
        numeric, categorical = (schema.numeric, schema.categorical) if features else ((), ())
        numeric_NF = np.empty((len(kept_N), len(numeric)), dtype=np.float32)
        codes_NK = np.empty((len(kept_N), len(categorical)), dtype=np.int32)
        if numeric or categorical:
            _fill(files, schema, kept_N, len(own[ROW_ID]), numeric_NF, codes_NK)
            pa.default_memory_pool().release_unused()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{folder}: the prepared table cannot be read ({_line(error)}).") from error
    weight_N = own.get(WEIGHT)
    return Rows(
        row_id_N=own[ROW_ID][kept_N].astype(np.int64),
        label_N=own[LABEL][kept_N].astype(np.int64 if schema.classes else np.float64),
        weight_N=None if weight_N is None else weight_N[kept_N].astype(np.float32),
        numeric_NF=numeric_NF,
        codes_NK=codes_NK,
    )


def _read_own(files: list[Path], schema: TableSchema, *, folded: bool) -> dict[str, NDArray[Any]]:
    """Our own columns of all files, concatenated."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [ROW_ID, LABEL, *([WEIGHT] if schema.weighted else []), *([FOLD] if folded else [])]
    # Not `read_table`, which loads pandas.
    found = pa.concat_tables(pq.ParquetFile(file).read(columns=columns) for file in files)
    return {column: as_numpy(found[column]) for column in columns}


def files_of(folder: Path) -> list[Path]:
    """The complete files of a split, by name."""
    return sorted(file for file in folder.glob("*.parquet") if file.name[0] not in "._")


def decode(
    batch: pa.RecordBatch,
    schema: TableSchema,
    numeric_NF: NDArray[np.float32],
    codes_NK: NDArray[np.int32],
    *,
    wanted: slice | NDArray[np.int64] = slice(None),
    target: slice | NDArray[np.int64] = slice(None),
) -> None:
    """Write the features of the rows `wanted` of a batch into the rows `target` of both matrices."""
    for place, feature in enumerate(schema.numeric):
        numeric_NF[target, place] = _slot(batch, feature.name)[wanted]
    for place, feature in enumerate(schema.categorical):
        code_N = _slot(batch, feature.name)[wanted]
        codes_NK[target, place] = np.where(np.isnan(code_N), -1, code_N)


def _slot(batch: pa.RecordBatch, name: str) -> NDArray[np.float32]:
    """Raises `pyarrow.ArrowTypeError` for a column of another type."""
    import pyarrow as pa

    column = batch.column(name)
    if column.type != pa.float32():
        raise pa.ArrowTypeError(f"{name} is {column.type}: another version of sparkgpu made it; run it again")
    return as_numpy(column)


def _fill(
    files: list[Path],
    schema: TableSchema,
    kept_N: NDArray[np.int64],
    rows: int,
    numeric_NF: NDArray[np.float32],
    codes_NK: NDArray[np.int32],
) -> None:
    """Decode the files, `rows` rows in all, into the matrices; row i is row `kept_N[i]` of the files."""
    import pyarrow.parquet as pq

    place_R: NDArray[np.int64] | None = None
    if not (len(kept_N) == rows and _ascends(kept_N)):
        place_R = np.full(rows, -1)
        place_R[kept_N] = np.arange(len(kept_N))
    names = [feature.name for feature in schema.features]
    begin = 0
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=names):
                end = begin + batch.num_rows
                if place_R is None:
                    decode(batch, schema, numeric_NF, codes_NK, target=slice(begin, end))
                else:
                    wanted = np.flatnonzero(place_R[begin:end] >= 0)
                    target = place_R[begin:end][wanted]
                    decode(batch, schema, numeric_NF, codes_NK, wanted=wanted, target=target)
                begin = end


def as_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Numbers without nulls, read-only. pyarrow's own `to_numpy` loads pandas (50 MB, half a second)."""
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    parts = [np.from_dlpack(chunk) for chunk in chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def as_float32(column: pa.Array) -> NDArray[np.float32]:
    """A column as float32; nulls become NaN, and values outside float32 the nearest infinity."""
    import pyarrow as pa

    return _filled(column.cast(pa.float32(), safe=False), np.float32("nan"))


def _filled(column: pa.Array, value: Any) -> NDArray[Any]:
    """Numbers with `value` in place of nulls."""
    if column.null_count == 0:
        return as_numpy(column)
    validity, data = column.buffers()
    begin, end = column.offset, column.offset + len(column)
    is_valid_N = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")[begin:end]
    values_N = np.frombuffer(data, dtype=column.type.to_pandas_dtype())[begin:end]
    return np.where(is_valid_N, values_N, values_N.dtype.type(value))


def _ascends(values_N: NDArray[np.int64]) -> bool:
    return bool((values_N[1:] > values_N[:-1]).all())


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
