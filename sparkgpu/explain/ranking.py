"""The columns in order of their importance, and the two models that are held against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from sparkgpu.config.registry.engines import branch_of
from sparkgpu.explain.columns import Column
from sparkgpu.explain.disagreement import differs
from sparkgpu.rundir.explanations import ColumnImportance, Importance
from sparkgpu.rundir.results import Results


def pair_of(results: Results, measured: set[str]) -> tuple[str, str] | None:
    """The trees and the network to hold against each other: the first of each kind in the run."""
    names = [
        next(
            (
                model.name
                for model in results.models
                if model.name in measured and model.engine and branch_of(model.engine) == branch
            ),
            None,
        )
        for branch in ("trees", "neural")
    ]
    trees, neural = names
    return (trees, neural) if trees is not None and neural is not None else None


def ranked(
    columns: Sequence[Column],
    found: Mapping[str, Mapping[str, list[float]]],
    pair: tuple[str, str] | None,
    metric: str,
) -> tuple[ColumnImportance, ...]:
    """Every measured column, the leading one of trees and network (or of all models) first."""
    by_column: dict[str, dict[str, Importance]] = defaultdict(dict)
    for model, of_model in found.items():
        means = {column: float(np.mean(drops)) for column, drops in of_model.items()}
        total = sum(max(mean, 0.0) for mean in means.values()) or 1.0
        for column, drops in of_model.items():
            by_column[column][model] = Importance(
                mean=means[column],
                std=float(np.std(drops, ddof=1)) if len(drops) > 1 else None,
                shuffles=len(drops),
                share=max(means[column], 0.0) / total,
            )
    leaders = pair or tuple(found)
    ranks: dict[str, list[int]] = defaultdict(list)
    for model in leaders:
        order = sorted(found[model], key=lambda column: -by_column[column][model].mean)
        for rank, column in enumerate(order):
            ranks[column].append(rank)
    names = [column.name for column in columns if column.name in ranks]
    names.sort(key=lambda name: float(np.mean(ranks[name])))
    return tuple(
        ColumnImportance(
            column=name,
            models=by_column[name],
            differs=differs(name, pair, by_column[name], metric) if pair else None,
        )
        for name in names
    )
