"""The report's pictures of one run, drawn when they are asked for."""

from __future__ import annotations

from sparkgpu.reading.frames import leaderboard_interval
from sparkgpu.reading.picture import ShownPicture, shown
from sparkgpu.report.curves import read_test
from sparkgpu.report.figure import plot_style
from sparkgpu.report.palette import styles
from sparkgpu.report.pictures import binary, classes, regression
from sparkgpu.report.pictures.dependence import dependence
from sparkgpu.report.pictures.importance import importance_map
from sparkgpu.report.pictures.learning import learning_curves
from sparkgpu.report.pictures.ranks import Rank, ranks
from sparkgpu.report.pictures.shared import short
from sparkgpu.report.pictures.timings import timings
from sparkgpu.report.sections.why import decimals_of
from sparkgpu.report.timeline import seconds_by_phase
from sparkgpu.report.training_curves import timed_curves
from sparkgpu.rundir.explanations import Explanations
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results
from sparkgpu.score.by_model import ModelPredictions
from sparkgpu.score.lines import lines_of, ranked
from sparkgpu.table.schema import TableSchema


def of_leaderboard(results: Results, rows: ModelPredictions | None) -> ShownPicture:
    """Each model's primary metric on the test rows with its 95 % interval."""
    metric = results.comparison.metric
    looks = styles(model.name for model in results.models)
    found = [
        Rank(
            name=short(line.model, 24),
            value=line.metrics[metric] or 0.0,
            ci95=leaderboard_interval(results, rows, line.model),
            style=looks[line.model],
            is_reference=line.model == results.comparison.leader,
        )
        for line in ranked(metric, lines_of("", results))
    ]
    caption = (
        "Each model's value on the test rows with its 95 % interval; the dashed line is the leader on the"
    )
    with plot_style(with_png=True):
        return shown(ranks("ranks", metric, found, f"{caption} validation rows."), "no model finished")


def of_curves(paths: RunPaths, results: Results) -> ShownPicture:
    """The learning curves of all models on one time axis."""
    with plot_style(with_png=True):
        found = learning_curves(timed_curves(paths, results), _names(results))
    return shown(found, "the trials left no learning curves")


def of_quality(paths: RunPaths, results: Results, schema: TableSchema) -> ShownPicture:
    """ROC curves, confusion matrices, or predicted against true values."""
    values = {model.name: model.metrics.test.get(results.comparison.metric) for model in results.models}
    test = read_test(paths, schema, results)
    with plot_style(with_png=True):
        if schema.task == "binary":
            found = binary.roc_curves(test, schema, results)
        elif schema.task == "multiclass":
            found = classes.confusion_matrices(test, schema, values)
        else:
            found = regression.predicted_against_true(test, schema, values)
    return shown(found, "the predictions of the trials are gone")


def of_importance(results: Results, found: Explanations) -> ShownPicture:
    """What each column is worth to each model."""
    with plot_style(with_png=True):
        drawn = importance_map(found, _names(results), decimals_of(found))
    return shown(drawn, "no model was explained")


def of_dependence(results: Results, found: Explanations) -> ShownPicture:
    """How the models' predictions depend on the leading columns."""
    with plot_style(with_png=True):
        drawn = dependence(found, _names(results), results.data.target)
    return shown(drawn, "no model was explained")


def of_time(paths: RunPaths, results: Results) -> ShownPicture:
    """Where the time went, by lane and branch."""
    with plot_style(with_png=True):
        phases = seconds_by_phase(paths, results.phases_s)
        return shown(timings(phases), "the run recorded no phases")


def _names(results: Results) -> list[str]:
    return [model.name for model in results.models]
