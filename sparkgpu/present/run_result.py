"""What `sparkgpu.run` returns and `sparkgpu.read_run` opens: a run's results, as frames and pictures.

Limits: it needs ``metrics.json``; frames of predictions, curves and importance also need their own files. A
run's folder may have been moved or be read-only. pandas and matplotlib are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkgpu.core.errors import EXIT_DONE, ConfigError, TrialError
from sparkgpu.core.rundir.metrics_json import finished_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.words import capital, clean, metric_title, number_text
from sparkgpu.present.frames import RunFrames, shown_path
from sparkgpu.present.leaderboard import all_metrics
from sparkgpu.present.table_model import markdown, plain_html
from sparkgpu.present.verdict import verdict
from sparkgpu.score.metrics import check_installed

if TYPE_CHECKING:
    from sparkgpu.predict.fitted import FittedModel
    from sparkgpu.predict.several import FittedTargets
    from sparkgpu.present.figure import Picture


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult(RunFrames):
    """What a run found: its folder, its exit code (0, or 5 when a trial failed) and its results.

    `metrics` is ``metrics.json`` as plain values; the methods without `plot_` give pandas DataFrames.

        >>> result = sparkgpu.read_run("reports/wine")
        >>> result.exit_code
        0
        >>> result.pairs()[["a", "b"]].iloc[0].tolist()
        ['trees', 'neural']
        >>> result.predictions("trees").columns.tolist()[:3]
        ['row_id', 'label', 'prediction']
    """

    exit_code: int

    @cached_property
    def metrics(self) -> Mapping[str, Any]:
        return self.results.as_dict()

    def plot_leaderboard(self) -> Picture:
        """Each model's primary metric on the test rows, with its 95 % interval."""
        from sparkgpu.present.pictures import scores

        rows, found = self._rows("test"), self.results
        names = (model.name for model in found.models)
        known = {name: rows.interval(found.data.task, name) for name in names} if rows else {}
        return self._shown(lambda: scores.leaderboard(found, known), "no model finished")

    def plot_curves(self) -> Picture:
        """The learning curves of all models."""
        from sparkgpu.present.pictures import scores

        absent = "the trials left no learning curves"
        return self._shown(lambda: scores.learning(self._paths, self.results), absent)

    def plot_quality(self) -> Picture:
        """ROC curves, confusion matrices, or predicted against true values, by the task."""
        from sparkgpu.present.pictures import classes, regression
        from sparkgpu.present.pictures.shared import MOST_ROWS
        from sparkgpu.score.predictions import predictions_of_models

        schema, found = self._schema, self.results
        rows = predictions_of_models(self._paths, schema, found, "test", MOST_ROWS)
        draw = {
            "binary": classes.two_classes,
            "multiclass": classes.several_classes,
            "regression": regression.numbers,
        }[schema.task]
        return self._shown(
            lambda: next(iter(draw(rows, schema, found)), None), "the predictions of the trials are gone"
        )

    def plot_importance(self) -> Picture:
        """What each column is worth to each model; raises as `importance` does."""
        from sparkgpu.present.pictures import columns

        found, names = self._explanations, [model.name for model in self.results.models]
        return self._shown(lambda: columns.importance_map(found, names), "no model was explained")

    @staticmethod
    def _shown(draw: Callable[[], Picture | None], absent: str) -> Picture:
        """What `draw` draws. Raises `ConfigError` with what is `absent` if that is nothing."""
        from sparkgpu.present.figure import plot_style

        with plot_style():
            picture = draw()
        if picture is None:
            raise ConfigError(f"there is nothing to draw: {absent}.")
        return picture

    @property
    def verdict(self) -> str:
        """The answer of the run in one sentence."""
        return verdict(self.results)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The comparison in words, a sentence for each pair."""
        return tuple(pair.sentence for pair in self.results.pairs)

    def load(self, model: str = "best") -> FittedModel:
        """A model of this run, ready to predict; as `sparkgpu.load`."""
        from sparkgpu.predict.fitted import FittedModel

        return FittedModel(self.path, model)

    @property
    def report(self) -> Path:
        """The report's page."""
        return self._paths.report / "index.html"

    def __repr__(self) -> str:
        return f"<run {shown_path(self.path)}: {self._in_short()}>"

    def __str__(self) -> str:
        table = markdown(all_metrics(self.results))
        return "\n".join([table, *self.verdicts, f"report: {shown_path(self.report)}"])

    def _repr_html_(self) -> str:
        """Plain tags, and all text of users escaped."""
        found = self.results.comparison
        table = all_metrics(self.results)
        notes = [f"{capital(text)}." for text in found.caveats]
        notes += [f"{trial.name} failed: {trial.error}" for trial in self.results.failed]
        return (
            f"<p><b>{escape(clean(self.verdict))}</b></p>{plain_html(table)}"
            f"<p>Scores on the test rows; the best of a {table.best_of} is bold.</p>"
            f"{_listed(self.verdicts)}{_listed(notes)}<p>report: {escape(shown_path(self.report))}</p>"
        )

    def _in_short(self) -> str:
        found = self.results.comparison
        leader = next((model for model in self.results.models if model.name == found.leader), None)
        if leader is None:
            return "no model finished"
        value = number_text((leader.averaged or leader.metrics).test.get(found.metric))
        return f"{leader.name} leads with {metric_title(found.metric)} {value}"


@dataclass(frozen=True, kw_only=True, repr=False)
class TargetsResult:
    """What a run with several targets found: the result of each by its name, such as ``result["price"]``.

    The folder `path` holds a run directory for each target, ``targets/<name>``.

        >>> few = {"trees.engine": "xgboost", "trees.ntrees": 20, "models": ["trees"]}
        >>> both = sparkgpu.run(
        ...     wine, target=["alcohol", "target"], out="reports/both", config=few, quiet=True
        ... )
        <BLANKLINE>
        target ...
        >>> both["alcohol"].metrics["data"]["task"], both["target"].metrics["data"]["task"]
        ('regression', 'multiclass')
        >>> both.load().predict(wine.head(2)).columns.tolist()
        ['alcohol', 'target']
    """

    path: Path
    exit_code: int
    targets: Mapping[str, RunResult]

    def __getitem__(self, target: str) -> RunResult:
        return self.targets[target]

    @property
    def report(self) -> Path:
        """The page over the reports of all targets."""
        return RunPaths(root=self.path).report / "index.html"

    def load(self, model: str = "best") -> FittedTargets:
        """A model of each target, ready to predict; as `sparkgpu.load`."""
        from sparkgpu.predict.several import FittedTargets

        return FittedTargets(self.path, model)

    def __repr__(self) -> str:
        return f"<run {shown_path(self.path)}: {', '.join(self.targets)}>"

    def __str__(self) -> str:
        return "\n\n".join(f"{clean(name)}\n{result}" for name, result in self.targets.items())

    def _repr_html_(self) -> str:
        return "".join(
            f"<h4>{escape(clean(name))}</h4>{result._repr_html_()}" for name, result in self.targets.items()
        )


def read_run(run_dir: str | Path) -> RunResult:
    """The results of the finished run in `run_dir`, as `sparkgpu.run` returned them.

    Raises `ConfigError` if the folder holds no finished run, or one with several targets (each has a folder
    of its own), or if the package of its metric is missing here.

        >>> sparkgpu.read_run("reports/wine").curves()["model"].unique().tolist()
        ['trees', 'neural']
    """
    paths = RunPaths(root=Path(run_dir).expanduser().resolve())
    results = finished_results(paths)
    check_installed(results.comparison.metric, paths.root)
    return RunResult(
        path=paths.root, exit_code=TrialError.exit_code if results.failed else EXIT_DONE, results=results
    )


def _listed(notes: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(clean(note))}</li>' for note in notes)}</ul>" if notes else ""
