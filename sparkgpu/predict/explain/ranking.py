"""The columns in order of their importance, and where trees and network use one differently."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from sparkgpu.core.config.registry.engines import branch_of
from sparkgpu.core.rundir.explanations import ColumnImportance, Importance
from sparkgpu.core.rundir.results import Results
from sparkgpu.core.words import metric_title, number_text
from sparkgpu.predict.explain.columns import Column

_SPREADS = 2.0
_PART = 0.5
_LEAST_SHARE = 0.03


def pair_of(results: Results, measured: set[str]) -> tuple[str, str] | None:
    """The trees and the network to compare: the first of each kind in the run."""
    first: dict[str, str] = {}
    for model in results.models:
        if model.name in measured and model.engine:
            first.setdefault(branch_of(model.engine), model.name)
    return (first["trees"], first["neural"]) if len(first) == 2 else None


def ranked(
    columns: Sequence[Column],
    found: Mapping[str, Mapping[str, list[float]]],
    pair: tuple[str, str] | None,
    metric: str,
) -> tuple[ColumnImportance, ...]:
    """Every measured column, the leading one of trees and network (or of all models) first."""
    by_column: dict[str, dict[str, Importance]] = defaultdict(dict)
    ranks: dict[str, list[int]] = defaultdict(list)
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
        if pair is None or model in pair:
            for rank, column in enumerate(sorted(means, key=lambda column: -means[column])):
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


def differs(column: str, pair: tuple[str, str], found: Mapping[str, Importance], metric: str) -> str | None:
    """The sentence that one model uses `column` more than the other; None if there is no clear difference.

    Shares of all importance are compared, since one model may lose more by every column. The difference is
    clear if it exceeds half of the larger share, which is at least 3 %, and if it exceeds twice the combined
    spread of the shuffles, in shares and in the metric itself.
    """
    if not set(pair) <= found.keys():
        return None
    first, second = sorted(pair, key=lambda name: -found[name].share)
    large, small = found[first], found[second]
    if large.std is None or small.std is None or large.share < _LEAST_SHARE:
        return None
    in_shares, in_metric = large.share - small.share, large.mean - small.mean
    spread_of_shares = math.hypot(  # a column without importance has none
        *(one.std * one.share / one.mean for one in (large, small) if one.mean > 0 and one.std)
    )
    if in_shares <= max(_SPREADS * spread_of_shares, _PART * large.share):
        return None
    if in_metric <= _SPREADS * math.hypot(large.std, small.std):
        return None
    title = metric_title(metric)
    texts = [
        f"{100 * one.share:.0f}\N{NO-BREAK SPACE}% of its importance, {number_text(one.mean, 2)} {title}"
        for one in (large, small)
    ]
    return f"{column} matters more to {first} ({texts[0]}) than to {second} ({texts[1]})."
