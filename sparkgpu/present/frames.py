"""The results of a run as pandas DataFrames, with the numbers as they are in its files.

Texts are of type object, counts int64, other numbers float64 with NaN where there is none; whole numbers that
may be absent are Int64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.explanations import Explanations
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.results import DoneTrial, Results
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.predict.output import prediction_columns, typed_classes
from sparkgpu.present.entries import Split, entries, ranked
from sparkgpu.score.predictions import ModelPredictions

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_KINDS: Mapping[type, str] = {str: "object", float: "float64", int: "int64", bool: "bool"}


def _frame(columns: Mapping[str, type | str], rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """`rows` in `columns` of these types; None becomes a gap."""
    import pandas as pd  # not before a frame is asked for

    kinds = {name: _KINDS[kind] if isinstance(kind, type) else kind for name, kind in columns.items()}
    return pd.DataFrame(list(rows), columns=list(columns), dtype=object).astype(kinds)


def leaderboard(results: Results, split: Split, rows: ModelPredictions | None) -> pd.DataFrame:
    """One row per model, the best by the primary metric first; a model of several trials: their average.

    `rows` give the 95 % interval of the primary metric; without them, or for fewer than ten rows, it is NaN.
    `std` is the primary metric's spread over the trials, on the test rows.
    """
    metric = results.comparison.metric
    names = list(dict.fromkeys(name for model in results.models for name in model.metrics.of(split)))
    columns: dict[str, type] = {
        "model": str, "engine": str, "status": str, "leader": bool, "trials": int,
        **dict.fromkeys(names, float), "ci_low": float, "ci_high": float, "std": float, "fit_s": float,
        "predict_s": float, "train_rows_per_s": float,
    }  # fmt: skip
    return _frame(
        columns,
        (
            (
                one.name, one.model.engine, one.model.status, one.name == results.comparison.leader,
                len(one.trials), *(one.metrics(split).get(name) for name in names),
                *(rows.interval(results.data.task, one.name) if rows else (None, None)),
                one.model.std.test.get(metric), one.fit_s, one.predict_s,
                np.mean([trial.train_rows_per_s for trial in one.trials]) if one.trials else None,
            )
            for one in ranked(metric, entries(results), split)
        ),
    )  # fmt: skip


def table(results: Results) -> pd.DataFrame:
    """The test metrics, one row per model: the means over its trials."""
    import pandas as pd

    models = {model.name: model.metrics.test for model in results.models}
    return pd.DataFrame.from_dict(models, orient="index")


def trials(results: Results) -> pd.DataFrame:
    """One row per trial, finished or not, with its metrics on the test rows."""
    names = list(dict.fromkeys(name for trial in results.trials for name in trial.metrics.test))
    measured: dict[str, type | str] = {
        "fit_s": float, "predict_s": float, "train_rows_per_s": float, "best_iteration": "Int64",
        "peak_host_bytes": "Int64", "peak_device_bytes": "Int64",
    }  # fmt: skip
    columns: dict[str, type | str] = {
        "trial": str, "model": str, "engine": str, "status": str, "seed": int, "fold": "Int64", "lane": int,
        "devices": str, "strategy": str, **dict.fromkeys(names, float), **measured, "error": str,
    }  # fmt: skip
    return _frame(
        columns,
        (
            (
                trial.name, trial.model, trial.engine, trial.status, trial.seed, trial.fold, trial.lane,
                ", ".join(trial.devices), trial.strategy, *(trial.metrics.test.get(name) for name in names),
                *(getattr(trial, name, None) for name in measured),
                None if isinstance(trial, DoneTrial) else trial.error,
            )
            for trial in results.trials
        ),
    )  # fmt: skip


def curves(paths: RunPaths, results: Results) -> pd.DataFrame:
    """One row per trial and step (a tree or an epoch), with the score on its training and validation rows."""
    columns = {
        "model": str, "trial": str, "step": int, "elapsed_s": float, "metric": str, "train": float,
        "valid": float,
    }  # fmt: skip
    rows = []
    for trial in results.trials:
        metric, points = read_curve(paths.trial(trial.name).learning_curve)
        rows += [
            (trial.model, trial.name, point.step, point.elapsed_s, metric, point.train, point.valid)
            for point in points
        ]
    return _frame(columns, rows)


def pairs(results: Results) -> pd.DataFrame:
    """One row per compared pair: the metric of `a` minus that of `b` on the test rows, and who is ahead."""
    columns = {
        "a": str, "b": str, "metric": str, "difference": float, "ci_low": float, "ci_high": float,
        "ahead": str, "sentence": str,
    }  # fmt: skip
    return _frame(
        columns,
        (
            (
                pair.a, pair.b, results.comparison.metric, pair.difference, *pair.ci95,
                {"a": pair.a, "b": pair.b}.get(pair.verdict), pair.sentence,
            )
            for pair in results.comparison.pairs
        ),
    )  # fmt: skip


def importance(found: Explanations) -> pd.DataFrame:
    """One row per column of the source and model, the leading column first."""
    columns = {
        "column": str, "model": str, "importance": float, "std": float, "share": float, "shuffles": int,
    }  # fmt: skip
    return _frame(
        columns,
        (
            (one.column, model, value.mean, value.std, value.share, value.shuffles)
            for one in found.importances
            for model, value in one.models.items()
        ),
    )


def predictions(schema: TableSchema, rows: ModelPredictions, name: str) -> pd.DataFrame:
    """Each row's id in the source, its label and what `name` predicts; without rows that it did not predict.

    The columns of the prediction are those of ``sparkgpu predict``.
    """
    import pandas as pd

    labels, values = rows.known(name)
    columns: dict[str, NDArray[Any]] = {"row_id": labels.row_id_N}
    if schema.classes:
        classes_C = typed_classes(schema)
        columns |= {"label": classes_C[labels.label_N], "prediction": classes_C[values.argmax(axis=1)]}
        for place, column in enumerate(prediction_columns(schema)[1:]):
            columns[column] = values[:, place]
    else:
        columns |= {"label": labels.label_N, "prediction": values}
    return pd.DataFrame(columns)
