"""The results of a run as pandas DataFrames, with the numbers as they are in its files.

Texts are of type object, counts int64, other numbers float64 with NaN where there is none; whole numbers that
may be absent are Int64. pandas is imported when a frame is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from sparkgpu.core.errors import ConfigError, TrialError
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.metrics_json import DoneTrial, Results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.entries import Split, entries, ranked

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from sparkgpu.core.rundir.explanations import Explanations
    from sparkgpu.core.table.schema import TableSchema
    from sparkgpu.score.predictions import ModelPredictions

_KINDS: Mapping[type, str] = {str: "object", float: "float64", int: "int64", bool: "bool"}


@dataclass(frozen=True, kw_only=True, repr=False)
class RunFrames:
    """The folder of a run and its results; each method gives a DataFrame."""

    path: Path
    results: Results

    def leaderboard(self, split: Split = "test") -> pd.DataFrame:
        """The models, the best by the run's primary metric first.

        Columns: ``model, engine, status, leader, trials``, each metric, the 95 % interval of the primary one
        (``ci_low, ci_high``) and its spread over trials (``std``), and the means ``fit_s, predict_s,
        train_rows_per_s``. A model of several trials is scored by their averaged predictions, as a blend
        mixes them. `leader` marks the model that led on the validation rows. Without the table or the
        predictions there is no interval.
        """
        _checked(split)
        found, rows = self.results, self._rows(split)
        metric = found.comparison.metric
        names = list(dict.fromkeys(name for model in found.models for name in model.metrics.of(split)))
        columns: dict[str, type] = {
            "model": str, "engine": str, "status": str, "leader": bool, "trials": int,
            **dict.fromkeys(names, float), "ci_low": float, "ci_high": float, "std": float, "fit_s": float,
            "predict_s": float, "train_rows_per_s": float,
        }  # fmt: skip
        return _frame(
            columns,
            (
                (
                    one.name, one.model.engine, one.model.status, one.name == found.comparison.leader,
                    len(one.trials), *(one.metrics(split).get(name) for name in names),
                    *(rows.interval(found.data.task, one.name) if rows else (None, None)),
                    one.model.std.test.get(metric), one.fit_s, one.predict_s,
                    np.mean([trial.train_rows_per_s for trial in one.trials]) if one.trials else None,
                )
                for one in ranked(metric, entries(found), split)
            ),
        )  # fmt: skip

    def trials(self) -> pd.DataFrame:
        """One row per trial, finished or not: seed, fold, lane, devices, test metrics, seconds, memory."""
        found = self.results.trials
        names = list(dict.fromkeys(name for trial in found for name in trial.metrics.test))
        measured: dict[str, type | str] = {
            "fit_s": float, "predict_s": float, "train_rows_per_s": float, "best_iteration": "Int64",
            "peak_host_bytes": "Int64", "peak_device_bytes": "Int64",
        }  # fmt: skip
        columns: dict[str, type | str] = {
            "trial": str, "model": str, "engine": str, "status": str, "seed": int, "fold": "Int64",
            "lane": int, "devices": str, "strategy": str, **dict.fromkeys(names, float), **measured,
            "error": str,
        }  # fmt: skip
        return _frame(
            columns,
            (
                (
                    trial.name, trial.model, trial.engine, trial.status, trial.seed, trial.fold, trial.lane,
                    ", ".join(trial.devices), trial.strategy,
                    *(trial.metrics.test.get(name) for name in names),
                    *(getattr(trial, name, None) for name in measured),
                    None if isinstance(trial, DoneTrial) else trial.error,
                )
                for trial in found
            ),
        )  # fmt: skip

    def curves(self) -> pd.DataFrame:
        """The learning curves: ``model, trial, step, elapsed_s, metric, train, valid``.

        A step is a tree or an epoch; `elapsed_s` counts from the start of that training.
        """
        columns = {
            "model": str, "trial": str, "step": int, "elapsed_s": float, "metric": str, "train": float,
            "valid": float,
        }  # fmt: skip
        rows = []
        for trial in self.results.trials:
            metric, points = read_curve(self._paths.trial(trial.name).learning_curve)
            rows += [
                (trial.model, trial.name, point.step, point.elapsed_s, metric, point.train, point.valid)
                for point in points
            ]
        return _frame(columns, rows)

    def pairs(self) -> pd.DataFrame:
        """The compared pairs: ``a, b, metric, difference, ci_low, ci_high, ahead, sentence``.

        `difference` is the metric of `a` minus that of `b` on the test rows; `ahead` is None for a tie.
        """
        columns = {
            "a": str, "b": str, "metric": str, "difference": float, "ci_low": float, "ci_high": float,
            "ahead": str, "sentence": str,
        }  # fmt: skip
        found = self.results.comparison
        return _frame(
            columns,
            (
                (
                    pair.a, pair.b, found.metric, pair.difference, *pair.ci95,
                    {"a": pair.a, "b": pair.b}.get(pair.verdict), pair.sentence,
                )
                for pair in found.pairs
            ),
        )  # fmt: skip

    def importance(self) -> pd.DataFrame:
        """What each column is worth to each model: ``column, model, importance, std, share, shuffles``.

        `importance` is by how much the primary metric gets worse when the column is shuffled, on a sample of
        the test rows, and `share` the column's part of all that the model loses. Raises `ConfigError` if the
        run has not been explained.
        """
        columns = {
            "column": str, "model": str, "importance": float, "std": float, "share": float, "shuffles": int,
        }  # fmt: skip
        return _frame(
            columns,
            (
                (one.column, model, value.mean, value.std, value.share, value.shuffles)
                for one in self._explanations.importances
                for model, value in one.models.items()
            ),
        )

    def predictions(self, model: str = "best", split: Split = "test") -> pd.DataFrame:
        """What `model` predicted during the run: ``row_id, label, prediction, probability_<class>...``.

        `model` is a name as in `load`; `row_id` is the row's position in the source. Rows that it did not
        predict are left out. Raises `ConfigError` for a model that this run has not, and `TrialError` if the
        predictions are gone.
        """
        import pandas as pd

        from sparkgpu.predict.members import model_name
        from sparkgpu.predict.output import prediction_columns, typed_classes
        from sparkgpu.score.predictions import predictions_of_models, predictions_of_trial

        _checked(split)
        name, schema = model_name(self.results, model, str(self.path)), self._schema
        trial = next((trial for trial in self.results.done() if trial.name == name), None)
        try:
            rows = (
                predictions_of_trial(self._paths, schema, trial, split)
                if trial
                else predictions_of_models(self._paths, schema, self.results, split)
            )
        except (KeyError, OSError, ValueError) as error:
            raise TrialError(f"{self.path}: the predictions of {name} cannot be read: {error}") from None
        if name not in rows.values:
            for one in self.results.done():
                self._paths.trial(one.name).check("predictions.parquet")
            raise TrialError(
                f"{self.path}: the predictions of {name} for the {split} rows are not in trials/. Copy the "
                "whole folder of the run."
            )
        labels, values = rows.known(name)
        columns: dict[str, NDArray[Any]] = {"row_id": labels.row_id_N}
        if schema.classes:
            classes_C = typed_classes(schema)
            columns |= {"label": classes_C[labels.label_N], "prediction": classes_C[values.argmax(axis=1)]}
            columns |= dict(zip(prediction_columns(schema)[1:], values.T, strict=True))
        else:
            columns |= {"label": labels.label_N, "prediction": values}
        return pd.DataFrame(columns)

    @property
    def _paths(self) -> RunPaths:
        return RunPaths(root=self.path)

    @cached_property
    def _schema(self) -> TableSchema:
        from sparkgpu.core.table.schema import read_schema

        if not self._paths.schema.is_file():
            raise ConfigError(
                f"{self.path}: it holds no table/schema.json. Copy the whole folder of the run."
            )
        return read_schema(self._paths)

    def _rows(self, split: Split) -> ModelPredictions | None:
        """None if the folder holds only results, not the rows they are of."""
        from sparkgpu.score.predictions import predictions_of_models

        if not self._paths.schema.is_file():
            return None
        try:
            return predictions_of_models(self._paths, self._schema, self.results, split)
        except ValueError:
            return None

    @property
    def _explanations(self) -> Explanations:
        from sparkgpu.core.rundir.explanations import read_explanations

        found = read_explanations(self._paths)
        if found is None:
            again = f"`sparkgpu report {shown_path(self.path)}` makes it"
            raise ConfigError(f"{self.path}: it holds no explanations.json. {again}.")
        return found


def compare(*runs: RunFrames | str | Path) -> pd.DataFrame:
    """The models of two or more finished runs or their folders, ranked as ``sparkgpu compare`` ranks them.

    Columns: ``board, metric, model, run, value, ci_low, ci_high, verdict, difference, difference_low,
    difference_high, fit_s, predict_s``. Models on one `board` were scored on the same test rows by one
    metric; the verdict and the difference are against its reference. Raises `ConfigError` if these are not
    several finished runs.

        >>> few = {**short, "models": ["trees"]}
        >>> other = sparkgpu.run(wine, target="target", out="reports/few", config=few, quiet=True)
        <BLANKLINE>
        test split ...
        >>> sorted(sparkgpu.compare("reports/wine", other)["run"].unique())
        ['few', 'wine']
    """
    from sparkgpu.present.compare import board, boards_of, read_runs

    folders = [run.path if isinstance(run, RunFrames) else Path(run) for run in runs]
    columns = {
        "board": int, "metric": str, "model": str, "run": str, "value": float, "ci_low": float,
        "ci_high": float, "verdict": str, "difference": float, "difference_low": float,
        "difference_high": float, "fit_s": float, "predict_s": float,
    }  # fmt: skip
    return _frame(
        columns,
        (
            (
                number, found.metric, one.name, one.run, one.value, *one.ci95, one.verdict,
                *((one.difference.difference, *one.difference.ci95) if one.difference else [None] * 3),
                one.fit_s, one.predict_s,
            )
            for number, found in enumerate(map(board, boards_of(read_runs(folders))))
            for one in found.entries
        ),
    )  # fmt: skip


def shown_path(path: Path) -> str:
    """`path` for people: without the folder that they are in."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _frame(columns: Mapping[str, type | str], rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """`rows` in `columns` of these types; None becomes a gap."""
    import pandas as pd

    kinds = {name: _KINDS[kind] if isinstance(kind, type) else kind for name, kind in columns.items()}
    return pd.DataFrame(list(rows), columns=list(columns), dtype=object).astype(kinds)


def _checked(split: str) -> None:
    if split not in get_args(Split):
        raise ConfigError(f"split {split!r}: a run keeps predictions of its valid and test rows. Choose one.")
