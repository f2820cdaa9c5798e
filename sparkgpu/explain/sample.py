"""The test rows that the models are asked about: a random sample, with the weights of the scorer.

N rows of the sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkgpu.errors import DataError
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.score.predictions import user_weights
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.row_groups import RowGroups
from sparkgpu.table.rows import Rows, joined
from sparkgpu.table.schema import TableSchema

_MOST_READ = 40  # times the sample; more rows would only take time to decode


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Rows in random order, so that the first of them are a sample, too. `weight_N` counts rows, or None."""

    rows: Rows
    weight_N: FloatArray | None

    def __len__(self) -> int:
        return len(self.rows.row_id_N)

    def first(self, rows: int) -> Sample:
        return Sample(
            rows=self.rows.part(slice(rows)), weight_N=None if self.weight_N is None else self.weight_N[:rows]
        )


def draw_sample(paths: RunPaths, schema: TableSchema, rows: int, seed: int) -> Sample:
    """At most `rows` test rows. Of a long table some row groups are read, chosen at random.

    With two classes the rarer one has at least a quarter of the rows, if it has so many, and weights restore
    its share: from two positive rows nothing can be learned about a ranking. Raises `DataError` if the table
    cannot be read.
    """
    random = np.random.default_rng(seed)
    read = _read(paths, schema, rows, random)
    weight_N, share_N = user_weights(read, schema), None
    if schema.task == "binary":
        chosen_N, share_N = _of_two_classes(read.label_N, rows, random)
    else:
        chosen_N = random.permutation(len(read.label_N))[:rows]
    found = [
        own_N for own_N in (None if weight_N is None else weight_N[chosen_N], share_N) if own_N is not None
    ]
    return Sample(rows=read.part(chosen_N), weight_N=np.prod(found, axis=0) if found else None)


def _read(paths: RunPaths, schema: TableSchema, rows: int, random: np.random.Generator) -> Rows:
    """All rows in the order of the files, or `_MOST_READ` times as many as are wanted."""
    groups = RowGroups(paths, schema, "test")
    parts: list[Rows] = []
    held, is_long = 0, sum(group.rows for group in groups.groups) > _MOST_READ * rows
    for part in groups.blocks(random if is_long else None):
        parts.append(part)
        held += len(part.row_id_N)
        if held >= _MOST_READ * rows:
            break
    if not parts:
        raise DataError(f"{paths.table}: the prepared table holds no test rows, so nothing can be explained.")
    return joined(parts)


def _of_two_classes(
    label_N: NDArray[np.int64], rows: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], FloatArray | None]:
    """The chosen rows in random order, and their weights unless all count the same."""
    order_N = random.permutation(len(label_N))
    if len(label_N) <= rows:
        return order_N, None
    by_class = [order_N[label_N[order_N] == code] for code in (0, 1)]
    rare = int(len(by_class[1]) < len(by_class[0]))
    wanted = min(rows // 4, len(by_class[rare]))
    if len(by_class[rare]) * rows // len(label_N) >= wanted:
        return order_N[:rows], None
    taken = {rare: wanted, 1 - rare: rows - wanted}
    chosen_N = random.permutation(np.concatenate([by_class[code][:count] for code, count in taken.items()]))
    share_C = np.array([len(by_class[code]) / max(taken[code], 1) for code in (0, 1)])
    share_N = share_C[label_N[chosen_N]]
    return chosen_N, share_N * len(share_N) / share_N.sum()
