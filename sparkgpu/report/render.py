"""Builds ``report/`` from the run directory alone: the page, the same in Markdown, ``metrics.csv``, pictures.

Limits: all text from the user's data is escaped, in HTML and in Markdown. The page contains its style and
pictures and loads nothing from the network. Files are complete or absent.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sparkgpu.config.registry.engines import branch_of
from sparkgpu.errors import ConfigError
from sparkgpu.plan.plan import Plan
from sparkgpu.report import cards, contest_tables, palette, tables
from sparkgpu.report.curves import LearningCurve, TestRows, learning_curve, read_test
from sparkgpu.report.figure import Picture, plot_style
from sparkgpu.report.pictures.learning import learning_curves
from sparkgpu.report.pictures.quality import quality
from sparkgpu.report.pictures.reliability import reliability_curves
from sparkgpu.report.pictures.timings import timings
from sparkgpu.report.verdict import verdict
from sparkgpu.rundir.files import read_record, write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results, read_results
from sparkgpu.table.schema import TableSchema, read_schema
from sparkgpu.words import counted, gibibytes, metric_title, number_text, seconds_text

PICTURES = (
    "roc_curves", "confusion_matrix", "predicted_vs_true", "reliability", "learning_curves", "timings",
)  # fmt: skip


def build(paths: RunPaths) -> Path:
    """Write the whole report again and return the path of ``index.html``.

    Reads ``metrics.json``, ``plan.json``, the table's schema and test labels, and the files of the trials. If
    predictions or learning curves are missing, only their picture is missing. Raises `ConfigError` if the
    folder holds no finished run.
    """
    for needed in (paths.metrics, paths.plan, paths.schema):
        if not needed.is_file():
            name = needed.relative_to(paths.root)
            raise ConfigError(f"{paths.root}: it holds no {name}; give the folder of a finished run.")
    results, schema, plan = read_results(paths), read_schema(paths), read_record(paths.plan, Plan)
    test = read_test(paths, schema, results)
    pictures = {picture.name: picture for picture in _pictures(paths, schema, results, test)}
    for picture in PICTURES:
        if picture in pictures and pictures[picture].png:
            _write_bytes(paths.report / f"{picture}.png", pictures[picture].png)
        else:
            (paths.report / f"{picture}.png").unlink(missing_ok=True)  # left by an earlier report
    write_text(paths.report / "metrics.csv", tables.metrics_csv(results))
    content = _content(schema, plan, results) | {"pictures": pictures}
    html = Environment(
        loader=PackageLoader("sparkgpu.report", ""), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    markdown = html.overlay(finalize=_markdown)
    write_text(paths.report / "report.md", markdown.get_template("report.md.j2").render(content))
    for model, card in cards.contents(paths, schema, results, test).items():
        write_text(cards.card_path(paths, model), markdown.get_template("card.md.j2").render(card))
    style = Markup(palette.css() + _source(html, "report.css"))
    page = paths.report / "index.html"
    write_text(page, html.get_template("report.html.j2").render(content, style=style))
    return page


def _pictures(paths: RunPaths, schema: TableSchema, results: Results, test: TestRows) -> list[Picture]:
    metric = results.comparison.metric
    values = {model.name: model.metrics.test.get(metric) for model in results.models}
    curves: dict[str, list[LearningCurve]] = {}
    for trial in results.trials:
        if curve := learning_curve(paths.trial(trial.name).learning_curve):
            curves.setdefault(trial.model, []).append(curve)
    of_networks = {trial.model for trial in results.trials if branch_of(trial.engine) == "neural"}
    with plot_style():
        found = (
            quality(test, schema, values),
            reliability_curves(test, schema, list(values)),
            learning_curves(curves, of_networks),
            timings(results.phases_s),
        )
    return [picture for picture in found if picture]


_NOTES = {
    "results": "A model's figures are means over its trials, ± their standard deviation; the blend mixes the "
    "averaged predictions of all trials. A plus sign marks training that reached its limit while it still "
    "improved.",
    "comparison": "The comparison uses each model's predictions averaged over its trials, row by row. A pair "
    "is a tie if its interval contains zero. The interval is about other rows like these, with the same "
    "fitted models.",
    "calibration": "The calibration error is the mean distance between a probability and how often it came "
    "true, over 15 bins: of the positive class, or of the predicted one of several. The temperature is "
    "fitted on the validation rows; below 1 it makes a model surer. With calibrate = true in run.toml, "
    "predictions are scaled; with more than two classes they are unless it is false.",
    "searches": "Each setting was judged by the validation rows alone; search.csv in the trial's folder has "
    "them all. A setting is given up when it is behind the others in the middle of its training.",
    "blend_parts": "A gain is what the blend loses on the validation rows without this member; models that "
    "do not help have no part.",
    "trials": "A step is a tree for the trees and an epoch for the network. Rows per second count each "
    "training row once per step, so they do not compare trees with networks. Predict is the time for the "
    "validation and test rows.",
    "cost": "Device time is the wall time of the run times the number of lanes.",
    "proofs": "The engines' own reports on the device that they trained on.",
}
"""The explanation of each table."""


def _notes(schema: TableSchema) -> dict[str, str]:
    if schema.weight is None:
        return _NOTES
    counted_by = (
        f"Column {schema.weight} weights the rows in every metric, in the intervals and in the "
        "weights of the blend."
    )
    return {**_NOTES, "results": f"{_NOTES['results']} {counted_by}"}


def _content(schema: TableSchema, plan: Plan, results: Results) -> dict[str, object]:
    """All values that the two templates show, by name."""
    metric = results.comparison.metric
    return {
        "run": results.run,
        "notes": _notes(schema),
        "schema": schema,
        "plan": plan,
        "verdict": verdict(results),
        "caveats": [f"{text[0].upper()}{text[1:]}." for text in results.comparison.caveats],
        "summary": _summary(schema, results),
        "results": tables.results(results),
        "validation": tables.results(results, "valid"),
        "comparison": tables.comparison(results),
        "comparison_metric": metric_title(metric),
        "calibration": contest_tables.calibration(results),
        "blend_parts": contest_tables.blend_parts(results),
        "searches": contest_tables.searches(results),
        "failures": tables.failures(results),
        "trials": tables.trials(results, metric),
        "timings": tables.timings(results),
        "splits": tables.splits(schema),
        "dropped": tables.dropped(schema),
        "features": tables.features(schema),
        "lanes": tables.lanes(plan),
        "proofs": tables.proofs(results),
        "trial_notes": [(trial.name, note) for trial in results.done() for note in trial.notes],
    }


def _summary(schema: TableSchema, results: Results) -> list[tuple[str, str]]:
    run, cost = results.run, results.cost
    classes = f", {len(schema.classes)} classes" if schema.classes else ""
    kinds = f"{len(schema.numeric):,} numeric, {len(schema.categorical):,} categorical"
    refused = f" ({schema.rows_refused:,} refused: no target value)" if schema.rows_refused else ""
    gpus = [f"{count} × {name}" for name, count in Counter(run.host.gpus).items()]
    machine = (run.host.processor, counted(run.host.cores, "core"), *gpus)
    pairs = [
        ("source", schema.source),
        ("target", f"{schema.target} ({schema.task}{classes})"),
        ("rows", f"{schema.rows:,}{refused}"),
        ("features", f"{len(schema.features):,}: {kinds}"),
        ("host", ", ".join(text for text in machine if text)),
        ("peak memory", gibibytes(run.peak_rss_bytes) if run.peak_rss_bytes else ""),
        ("started", run.started_at.replace("T", " ").replace("Z", " UTC")),
        ("wall time", run.wall_text),
        ("device time", seconds_text(3600 * cost.device_hours)),
        ("GPU energy", f"{number_text(cost.energy_wh)} Wh" if cost.energy_wh is not None else ""),
        ("price", number_text(cost.price) if cost.price is not None else ""),
        ("folds", str(schema.folds or "")),
    ]
    return [(name, text) for name, text in pairs if text]


def _markdown(value: object) -> Markup:
    """Escape text so that Markdown shows it literally, on one line; a macro's output is Markdown already."""
    if isinstance(value, Markup):
        return value
    text = " ".join(str(value).split())
    text = re.sub(r"([\\`*\[\]|~])", r"\\\1", text)
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # inside a word an underscore has no meaning
    return Markup(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def _source(environment: Environment, name: str) -> str:
    assert environment.loader
    return environment.loader.get_source(environment, name)[0]


def _write_bytes(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
