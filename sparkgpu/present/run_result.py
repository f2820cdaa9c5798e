"""What `sparkgpu.run` returns and `sparkgpu.read_run` opens: a run's results, as frames and pictures.

Limits: it needs ``metrics.json``; frames of predictions, curves and importance also need their own files. A
run's folder may have been moved or be read-only. pandas and matplotlib are imported when they are asked for.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from sparkgpu.core.errors import EXIT_DONE, ConfigError, TrialError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.results import Results, finished_results
from sparkgpu.core.words import capital, clean, metric_title, number_text
from sparkgpu.present import frames
from sparkgpu.present.entries import Split
from sparkgpu.present.leaderboard import models_down
from sparkgpu.present.table import plain_html
from sparkgpu.present.verdict import verdict

if TYPE_CHECKING:
    import pandas

    from sparkgpu.core.rundir.explanations import Explanations
    from sparkgpu.core.table.schema import TableSchema
    from sparkgpu.predict.fitted import FittedModel
    from sparkgpu.present.figure import Picture
    from sparkgpu.score.predictions import ModelPredictions


@dataclass(frozen=True, repr=False)
class ShownPicture:
    """A picture as a notebook shows it, on white, which every host and theme can show.

    `png` are its bytes, `caption` tells in words what it shows.
    """

    png: bytes
    caption: str

    def save(self, file: str | Path) -> Path:
        """Write the picture to `file`, whose name ends with .png."""
        path = Path(file)
        if path.suffix.lower() != ".png":
            raise ConfigError(f"{file}: the picture is a PNG. Give a name that ends with .png.")
        path.write_bytes(self.png)
        return path

    def __repr__(self) -> str:
        return f"<picture: {self.caption}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/png": base64.b64encode(self.png).decode("ascii"), "text/plain": repr(self)}


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult:
    """What a run found: its folder, its exit code (0, or 5 when a trial failed) and its results.

    `metrics` is ``metrics.json`` as plain values; the methods without `plot_` give pandas DataFrames.
    """

    path: Path
    exit_code: int
    results: Results

    @cached_property
    def metrics(self) -> Mapping[str, Any]:
        return self.results.as_dict()

    def leaderboard(self, split: Split = "test") -> pandas.DataFrame:
        """The models, the best by the run's primary metric first.

        Columns: ``model, engine, status, leader, trials``, each metric, the 95 % interval of the primary one
        (``ci_low, ci_high``) and its spread over trials (``std``), and the means ``fit_s, predict_s,
        train_rows_per_s``. A model of several trials is scored by their averaged predictions, as a blend
        mixes them. `leader` marks the model that led on the validation rows. Without the table or the
        predictions there is no interval.
        """
        _checked(split)
        return frames.leaderboard(self.results, split, self._rows(split))

    def table(self) -> pandas.DataFrame:
        """The test metrics, one row per model (means over trials)."""
        return frames.table(self.results)

    def trials(self) -> pandas.DataFrame:
        """One row per trial, finished or not: seed, fold, lane, devices, test metrics, seconds, memory."""
        return frames.trials(self.results)

    def curves(self) -> pandas.DataFrame:
        """The learning curves: ``model, trial, step, elapsed_s, metric, train, valid``.

        A step is a tree or an epoch; `elapsed_s` counts from the start of that training.
        """
        return frames.curves(self._paths, self.results)

    def pairs(self) -> pandas.DataFrame:
        """The compared pairs: ``a, b, metric, difference, ci_low, ci_high, ahead, sentence``.

        `difference` is the metric of `a` minus that of `b` on the test rows; `ahead` is None for a tie.
        """
        return frames.pairs(self.results)

    def importance(self) -> pandas.DataFrame:
        """What each column is worth to each model: ``column, model, importance, std, share, shuffles``.

        `importance` is by how much the primary metric gets worse when the column is shuffled, on a sample of
        the test rows, and `share` the column's part of all that the model loses. Raises `ConfigError` if the
        run has not been explained.
        """
        return frames.importance(self._explanations())

    def predictions(self, model: str = "best", split: Split = "test") -> pandas.DataFrame:
        """What `model` predicted during the run: ``row_id, label, prediction, probability_<class>...``.

        `model` is a name as in `load`; `row_id` is the row's position in the source. Raises `ConfigError` for
        a model that this run has not, and `TrialError` if the predictions are gone.
        """
        from sparkgpu.predict.members import model_name
        from sparkgpu.score.predictions import predictions_of_models, predictions_of_trial

        _checked(split)
        name = model_name(self.results, model, str(self.path))
        schema = self._schema()
        trial = next((trial for trial in self.results.done() if trial.name == name), None)
        try:
            if trial is not None:
                rows = predictions_of_trial(self._paths, schema, trial, split)
            else:
                rows = predictions_of_models(self._paths, schema, self.results, split)
        except (KeyError, OSError, ValueError) as error:
            raise TrialError(f"{self.path}: the predictions of {name} cannot be read: {error}") from None
        if name not in rows.values:
            raise TrialError(
                f"{self.path}: the predictions of {name} for the {split} rows are not in trials/. Copy the "
                "whole folder of the run."
            )
        return frames.predictions(schema, rows, name)

    def plot_leaderboard(self) -> ShownPicture:
        """Each model's primary metric on the test rows, with its 95 % interval."""
        from sparkgpu.present.pictures import scores

        rows, found = self._rows("test"), self.results
        names = (model.name for model in found.models)
        known = {name: rows.interval(found.data.task, name) for name in names} if rows else {}
        return self._shown(lambda: scores.with_leader(found, known), "no model finished")

    def plot_curves(self) -> ShownPicture:
        """The learning curves of all models."""
        from sparkgpu.present.pictures import scores

        absent = "the trials left no learning curves"
        return self._shown(lambda: scores.learning(self._paths, self.results), absent)

    def plot_quality(self) -> ShownPicture:
        """ROC curves, confusion matrices, or predicted against true values, by the task."""
        from sparkgpu.present.pictures import classes, regression
        from sparkgpu.present.pictures.shared import MOST_ROWS
        from sparkgpu.score.predictions import predictions_of_models

        schema, found = self._schema(), self.results
        rows = predictions_of_models(self._paths, schema, found, "test", MOST_ROWS)
        draw = {
            "binary": classes.roc_curves,
            "multiclass": classes.confusion_matrices,
            "regression": regression.predicted_against_true,
        }[schema.task]
        return self._shown(lambda: draw(rows, schema, found), "the predictions of the trials are gone")

    def plot_importance(self) -> ShownPicture:
        """What each column is worth to each model; raises as `importance` does."""
        from sparkgpu.present.pictures import columns

        found, names = self._explanations(), [model.name for model in self.results.models]
        return self._shown(lambda: columns.importance_map(found, names), "no model was explained")

    def plot_dependence(self) -> ShownPicture:
        """How predictions depend on the leading columns; raises as `importance` does."""
        from sparkgpu.present.pictures import columns

        found, names = self._explanations(), [model.name for model in self.results.models]
        target = self.results.data.target
        return self._shown(lambda: columns.dependence(found, names, target), "no model was explained")

    def plot_time(self) -> ShownPicture:
        """Where the time of the run went, by lane and branch."""
        from sparkgpu.present.pictures import machine
        from sparkgpu.present.timeline import seconds_by_phase

        phases = seconds_by_phase(self._paths, self.results.phases_s)
        return self._shown(lambda: machine.timings(phases), "the run recorded no phases")

    @staticmethod
    def _shown(draw: Callable[[], Picture | None], absent: str) -> ShownPicture:
        """The picture as a PNG. Raises `ConfigError` with what is `absent` if there is none."""
        from sparkgpu.present.figure import plot_style

        with plot_style(with_png=True):
            picture = draw()
        if picture is None:
            raise ConfigError(f"there is nothing to draw: {absent}.")
        return ShownPicture(picture.png, picture.caption)

    @property
    def verdict(self) -> str:
        """The answer of the run in one sentence."""
        return verdict(self.results)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The comparison in words, a sentence for each pair."""
        return tuple(pair.sentence for pair in self.results.comparison.pairs)

    def load(self, model: str = "best") -> FittedModel:
        """A model of this run, ready to predict; as `sparkgpu.load`."""
        from sparkgpu.predict.fitted import load

        return load(self.path, model)

    @property
    def report(self) -> Path:
        """The report's page."""
        return self._paths.report / "index.html"

    def __repr__(self) -> str:
        return f"<run {shown_path(self.path)}: {self._in_short()}>"

    def __str__(self) -> str:
        return "\n".join(
            [self.table().round(4).to_string(), *self.verdicts, f"report: {shown_path(self.report)}"]
        )

    def _repr_html_(self) -> str:
        """Plain tags, and all text of users escaped."""
        found = self.results.comparison
        notes = [f"{capital(text)}." for text in found.caveats]
        notes += [f"{trial.name} failed: {trial.error}" for trial in self.results.failed]
        return (
            f"<p><b>{escape(clean(self.verdict))}</b></p>{plain_html(models_down(self.results))}"
            "<p>Scores on the test rows; the best of a column is bold.</p>"
            f"{_listed(self.verdicts)}{_listed(notes)}<p>report: {escape(shown_path(self.report))}</p>"
        )

    @property
    def _paths(self) -> RunPaths:
        return RunPaths(root=self.path)

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
            return predictions_of_models(self._paths, self._schema(), self.results, split)
        except ValueError:
            return None

    def _explanations(self) -> Explanations:
        from sparkgpu.core.rundir.explanations import read_explanations

        found = read_explanations(self._paths)
        if found is None:
            again = f"`sparkgpu report {shown_path(self.path)}` makes it"
            raise ConfigError(f"{self.path}: it holds no explanations.json. {again}.")
        return found

    def _in_short(self) -> str:
        found = self.results.comparison
        leader = next((model for model in self.results.models if model.name == found.leader), None)
        if leader is None:
            return "no model finished"
        value = number_text((leader.averaged or leader.metrics).test.get(found.metric))
        return f"{leader.name} leads with {metric_title(found.metric)} {value}"


def read_run(run_dir: str | Path) -> RunResult:
    """The results of the finished run in `run_dir`, as `sparkgpu.run` returned them.

    Raises `ConfigError` if the folder holds no finished run.
    """
    paths = RunPaths(root=Path(run_dir).expanduser().resolve())
    results = finished_results(paths)
    return RunResult(
        path=paths.root, exit_code=TrialError.exit_code if results.failed else EXIT_DONE, results=results
    )


def shown_path(path: Path) -> str:
    """`path` for people: without the folder that they are in."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _listed(notes: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(clean(note))}</li>' for note in notes)}</ul>" if notes else ""


def _checked(split: str) -> None:
    if split not in get_args(Split):
        raise ConfigError(f"split {split!r}: a run keeps predictions of its valid and test rows. Choose one.")
