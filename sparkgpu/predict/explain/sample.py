"""The test rows that the models are asked about: a random sample, with the weights of the scorer.

N rows of the sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import RowGroups, Rows, joined
from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.predict.explain.columns import Places
from sparkgpu.prepare.pairs import fill_pairs
from sparkgpu.score.predictions import user_weights
from sparkgpu.score.rows import FloatArray

_MOST_READ = 40  # times the sample; more rows would only take time to decode


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Rows in random order, so that the first of them are a sample, too. `weight_N` counts rows."""

    schema: TableSchema
    rows: Rows
    weight_N: FloatArray

    def __len__(self) -> int:
        return len(self.rows.row_id_N)

    def first(self, rows: int) -> Sample:
        return replace(self, rows=self.rows.part(slice(rows)), weight_N=self.weight_N[:rows])

    def changed(self, row_N: NDArray[np.int64], places: Places, from_N: NDArray[np.int64]) -> Rows:
        """The rows `row_N`, whose columns in `places` are those of the rows `from_N`."""
        rows = self.rows.part(row_N)
        for place in places.numeric:
            rows.numeric_NF[:, place] = self.rows.numeric_NF[from_N, place]
        for place in places.codes:
            rows.codes_NK[:, place] = self.rows.codes_NK[from_N, place]
        fill_pairs(self.schema, rows.numeric_NF)
        return rows


def draw_sample(paths: RunPaths, schema: TableSchema, rows: int, seed: int) -> Sample:
    """At most `rows` test rows. Of a long table some row groups are read, chosen at random.

    With two classes the rarer one has at least a quarter of the rows, if it has so many, and weights restore
    its share: from two positive rows nothing can be learned about a ranking. Raises `DataError` if the table
    cannot be read.
    """
    random = np.random.default_rng(seed)
    read = read_some(paths, schema, "test", rows, random)
    chosen_N = random.permutation(len(read.label_N))
    weight_N = np.ones(len(chosen_N[:rows]))
    if schema.task == "binary" and len(chosen_N) > rows:
        chosen_N, weight_N = _of_two_classes(read.label_N[chosen_N], chosen_N, rows, random)
    chosen_N, own_N = chosen_N[:rows], user_weights(read, schema)
    return Sample(
        schema=schema,
        rows=read.part(chosen_N),
        weight_N=weight_N if own_N is None else weight_N * own_N[chosen_N],
    )


def read_some(
    paths: RunPaths, schema: TableSchema, split: SplitName, rows: int, random: np.random.Generator
) -> Rows:
    """All rows of a split in the order of the files, or `_MOST_READ` times as many as are wanted."""
    groups = RowGroups(paths, schema, split)
    parts: list[Rows] = []
    held, is_long = 0, sum(group.rows for group in groups.groups) > _MOST_READ * rows
    for part in groups.blocks(random if is_long else None):
        parts.append(part)
        held += len(part.row_id_N)
        if held >= _MOST_READ * rows:
            break
    if not parts:
        raise DataError(
            f"{paths.table}: the prepared table holds no {split} rows, so nothing can be explained."
        )
    return joined(parts)


def _of_two_classes(
    label_N: NDArray[np.int64], order_N: NDArray[np.int64], rows: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], FloatArray]:
    """The chosen rows of those in `order_N`, which have these labels, and their weights."""
    by_class = [order_N[label_N == code] for code in (0, 1)]
    rare = int(len(by_class[1]) < len(by_class[0]))
    wanted = min(rows // 4, len(by_class[rare]))
    if len(by_class[rare]) * rows // len(label_N) >= wanted:
        return order_N[:rows], np.ones(rows)
    taken = {rare: wanted, 1 - rare: rows - wanted}
    order = random.permutation(rows)
    chosen_N = np.concatenate([by_class[code][:count] for code, count in taken.items()])[order]
    share_C = [len(by_class[code]) / count for code, count in taken.items()]
    share_N = np.repeat(share_C, list(taken.values()))[order]
    return chosen_N, share_N * rows / share_N.sum()
