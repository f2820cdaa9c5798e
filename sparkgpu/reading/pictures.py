"""The report's pictures of one run, drawn when they are asked for."""

from __future__ import annotations

from sparkgpu.config.registry.engines import branch_of
from sparkgpu.reading.frames import leaderboard_interval
from sparkgpu.reading.picture import ShownPicture, shown
from sparkgpu.report.curves import LearningCurve, learning_curve, read_test
from sparkgpu.report.figure import plot_style
from sparkgpu.report.palette import styles
from sparkgpu.report.pictures.learning import learning_curves
from sparkgpu.report.pictures.quality import quality
from sparkgpu.report.pictures.ranks import Rank, ranks
from sparkgpu.report.pictures.shared import short
from sparkgpu.report.pictures.timings import timings
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
    with plot_style():
        return shown(ranks("ranks", metric, found, f"{caption} validation rows."), "no model finished")


def of_curves(paths: RunPaths, results: Results) -> ShownPicture:
    """The learning curves, a panel for each model."""
    curves: dict[str, list[LearningCurve]] = {}
    for trial in results.trials:
        if curve := learning_curve(paths.trial(trial.name).learning_curve):
            curves.setdefault(trial.model, []).append(curve)
    networks = {trial.model for trial in results.trials if branch_of(trial.engine) == "neural"}
    with plot_style():
        return shown(learning_curves(curves, networks), "the trials left no learning curves")


def of_quality(paths: RunPaths, results: Results, schema: TableSchema) -> ShownPicture:
    """ROC curves, confusion matrices, or predicted against true values."""
    values = {model.name: model.metrics.test.get(results.comparison.metric) for model in results.models}
    test = read_test(paths, schema, results)
    with plot_style():
        return shown(quality(test, schema, values), "the predictions of the trials are gone")


def of_time(results: Results) -> ShownPicture:
    """Where the time went, by lane and branch."""
    with plot_style():
        return shown(timings(results.phases_s), "the run recorded no phases")
