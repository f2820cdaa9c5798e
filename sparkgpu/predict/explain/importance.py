"""What the columns are worth to each model: how much worse it predicts when one of them is shuffled.

The columns stand in the order of their importance, with a sentence where trees and network differ.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from sparkgpu.core.config.registry.engines import branch_of
from sparkgpu.core.rundir.explanations import ColumnImportance, Importance
from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.words import counted, metric_title, number_text
from sparkgpu.predict.explain.columns import Column, Places
from sparkgpu.predict.explain.models import Models
from sparkgpu.score.metrics import primary, score

_LEAST_ROWS, _SCREENED_ROWS = 250, 100
_LEAST_COLUMNS, _MOST_COLUMNS = 20, 40  # looked at closely; more would not be read
_ROUNDS = 4
_WANTED_ROUNDS = 3  # before rows are spared
_FOR_SCREENING = 0.4  # of the time
_FOR_DRAWING = 0.4  # of the time, at most
_SPREADS = 2.0
_PART = 0.5
_LEAST_SHARE = 0.03


def importances(
    own: Models, columns: Sequence[Column], rows_to_draw: int
) -> tuple[dict[str, dict[str, list[float]]], int]:
    """By model and column: what each shuffle costs, and the rows that it was measured on.

    Time is kept to ask for `rows_to_draw` rows afterwards.
    """
    size = len(own.sample)
    if not own.models or not columns:
        return {}, size
    if any(one.value is None for one in own.models):
        own.notes.append("The sample of test rows has one class only, so no importance is measured.")
        return {}, size
    row_s, left_s = own.row_s, own.until - time.monotonic()
    until = own.until - min(1.3 * row_s * rows_to_draw + 0.1, _FOR_DRAWING * left_s)
    most = int((1 - _FOR_SCREENING) * (until - time.monotonic()) / (row_s * min(_LEAST_ROWS, size)))
    most = min(max(most, _LEAST_COLUMNS), _MOST_COLUMNS)
    if len(columns) > most:
        columns = _screened(own, columns, most, time.monotonic() + _FOR_SCREENING * left_s)
    rows = int((until - time.monotonic()) / (row_s * len(columns) * _WANTED_ROUNDS))
    rows = min(max(rows, _LEAST_ROWS), size)
    found = _shuffled(own, [column.places for column in columns], rows, _ROUNDS, until)
    for model in own.models:
        missing = len(columns) - len(found[model.name])
        if missing:
            own.notes.append(f"There was no time for {counted(missing, 'column')} with {model.name}.")
    return {
        model: {columns[group].name: drops for group, drops in of_model.items()}
        for model, of_model in found.items()
        if of_model
    }, rows


def _shuffled(
    own: Models, groups: Sequence[Places], rows: int, rounds: int, until: float
) -> dict[str, dict[int, list[float]]]:
    """By model and group: what each shuffle of the first `rows` rows costs in the score.

    Round by round, so that the models share the time.
    """
    kept, metric = own.sample.first(rows), primary(own.schema.task, own.schema.metric)
    row_N = np.arange(len(kept))
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for round_ in range(rounds):
        for model in own.models:
            whole = model.metric(kept, model.predict(kept.rows))
            for number, group in enumerate(groups):
                if whole is None or time.monotonic() + len(kept) * model.row_s > until:
                    break
                # The same for every model.
                order_N = np.random.default_rng((own.seed, round_, number)).permutation(len(kept))
                shuffled = model.metric(kept, model.predict(kept.changed(row_N, group, order_N)))
                assert shuffled is not None  # the labels are the same
                found[model.name][number].append(score(metric, whole) - score(metric, shuffled))
    return found


def _screened(own: Models, columns: Sequence[Column], most: int, until: float) -> Sequence[Column]:
    """The `most` columns that are worth a closer look, found by halves.

    The columns are shuffled in groups; the half of the groups that costs more is kept, and cut in two, until
    a group is a column.
    """
    parts = np.array_split(np.arange(len(columns)), min(2 * most, len(columns)))
    while True:
        groups = [sum((columns[place].places for place in part), Places()) for part in parts]
        worth = np.zeros(len(parts))
        for of_model in _shuffled(own, groups, _SCREENED_ROWS, 1, until).values():
            spread = max((abs(drops[0]) for drops in of_model.values()), default=0.0) or 1.0
            for group, drops in of_model.items():
                worth[group] = max(worth[group], drops[0] / spread)
        are_single = all(len(part) == 1 for part in parts)
        parts = [parts[place] for place in np.argsort(-worth, kind="stable")[:most]]
        if are_single or time.monotonic() > until:
            break
        parts = [half for part in parts for half in np.array_split(part, min(2, len(part)))]
    kept = [columns[place] for part in parts for place in part][:most]
    own.notes.append(
        f"Of {len(columns):,} columns the {len(kept)} that cost most in a first pass are shown; it shuffled "
        f"them in groups, on {_SCREENED_ROWS:,} rows."
    )
    return kept


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
    ranking = {model: len(drops) for model, drops in found.items() if pair is None or model in pair}
    most = max(ranking.values(), default=0)  # a model that had no time for some columns ranks none
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
        if ranking.get(model) == most:
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
