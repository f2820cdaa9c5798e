"""The sections of a report's page, in order, and its head: what their templates show.

A section's values are those of ``templates/<id>.html.j2`` and, for ``report.md``, ``<id>.md.j2``. A section
without values is left out, of the table of contents as well.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.toml import load
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.advice import AdviceRecord
from sparkgpu.core.rundir.explanations import Explanations, read_explanations
from sparkgpu.core.rundir.files import read_optional
from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.profile import TableProfile
from sparkgpu.core.table.rows import Rows, read_rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import (
    blend_of_one,
    capital,
    counted,
    listed,
    metric_title,
    number_text,
    seconds_text,
)
from sparkgpu.present import data_tables, failures, leaderboard, result_tables, scaling
from sparkgpu.present.agreement import agreement, disagreement, most_confused
from sparkgpu.present.pictures import classes, columns, machine, regression, scores
from sparkgpu.present.pictures.shared import best_few, with_predictions
from sparkgpu.present.pictures.summary import summary
from sparkgpu.present.result_tables import Fact
from sparkgpu.present.timeline import seconds_by_phase
from sparkgpu.present.verdict import next_steps, verdict
from sparkgpu.score.compare import Interval
from sparkgpu.score.predictions import ModelPredictions
from sparkgpu.score.segments import LEAST_ROWS, Segment

Content = Mapping[str, object]

_DOUBTS = ("leakage", "duplicates across splits", "drift between splits")
_LEADING = 10
_MOST_SENTENCES = 8


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A run as its sections see it; `test` holds its models' predictions, of a large table only some rows."""

    paths: RunPaths
    results: Results
    schema: TableSchema
    plan: Plan
    test: ModelPredictions

    @cached_property
    def config(self) -> RunConfig | None:
        """``run.toml``; None if it is gone or cannot be read."""
        try:
            return load(file=self.paths.config) if self.paths.config.is_file() else None
        except (ConfigError, OSError):
            return None

    @property
    def settings_besides(self) -> str:
        """What a repetition needs besides ``run.toml``: the cluster, if spark-submit named it."""
        master = self.plan.master
        if master is None or self.config is None or self.config.cluster.master:
            return ""
        return f"--set cluster.master={shlex.quote(master)}"

    @cached_property
    def profile(self) -> TableProfile | None:
        return read_optional(self.paths.profile, TableProfile)

    @cached_property
    def features(self) -> Rows:
        """The features of the rows in `test`."""
        return read_rows(self.paths, self.schema, "test", every=self.test.every)

    @cached_property
    def segments(self) -> dict[str, tuple[Segment, ...]]:
        """Groups of the test rows with each model's loss there; they take a while with many features."""
        return failures.judged_segments(self.schema, self.test, self.features)

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """The 95 % interval of the primary metric of each model that has one."""
        found = {model: self.test.interval(self.schema.task, model) for model in self.test.values}
        return {model: ends for model, ends in found.items() if ends[0] is not None}


def facts(run: Inputs) -> list[Fact]:
    """The head of the page; facts without a value are left out."""
    host = run.results.run.host
    gpus = [f"{count} × {name}" for name, count in Counter(host.gpus).items()]
    cores = counted(host.cores, "core")
    hint = ", ".join(filter(None, (host.processor, cores, *gpus)))
    machine = Fact("machine", ", ".join(gpus) or f"{cores}, no GPU", hint)
    if master := run.plan.master:
        machine = Fact("cluster", run.plan.reasons.get("devices", master), master)
    found = (
        *data_tables.about_table(run.schema),
        machine,
        *result_tables.taken(run.results, on_cluster=bool(master)),
    )  # fmt: skip
    return [fact for fact in found if fact.text]


def _result(run: Inputs) -> Content:
    """The first screen: the verdict, the leaderboard, what each model was given, and what to run next."""
    found = run.results
    checks = run.profile.checks if run.profile else ()
    doubts = [check.name for check in checks if check.name in _DOUBTS and not check.passed]
    caveats = list(found.comparison.caveats)
    if doubts:
        caveats.append(f"the table raises doubts about these figures: {' and '.join(doubts)} (see Data)")
    only = next((model.only for model in found.models if model.only), None)
    return {
        "verdict": verdict(found),
        "caveats": [f"{capital(text)}." for text in caveats],
        "failures": result_tables.failures(found),
        "picture": scores.leaderboard(found, run.intervals),
        "leaderboard": leaderboard.leaderboard(found, run.intervals),
        "given": leaderboard.given(found),
        "steps": next_steps(found, folder=str(run.paths.root), settings=run.settings_besides),
        "results": leaderboard.all_metrics(found),
        "checks": leaderboard.checks(found),
        "weight": run.schema.weight,
        "comparison": result_tables.comparison(found),
        "comparison_metric": metric_title(found.comparison.metric),
        "blend_of_one": blend_of_one(only) if only else "",
        "layers": leaderboard.layers(found),
        "folds": run.schema.folds,
        "blend_parts": result_tables.blend_parts(found),
    }


def _quality(run: Inputs) -> Content | None:
    """How good the predictions are: pictures of the errors, calibration, where the models agree."""
    test, schema, results = run.test, run.schema, run.results
    draw = {
        "binary": classes.two_classes, "multiclass": classes.several_classes, "regression": regression.numbers
    }[schema.task]  # fmt: skip
    pictures = draw(test, schema, results)
    several = schema.task == "multiclass"
    wide = [one for one in pictures if not schema.classes or one.name == "confusion_matrix"]
    alike, sure = agreement(test, schema, results), leaderboard.intervals(results)
    content: dict[str, object] = {
        "wide": wide,
        "pictures": [one for one in pictures if one not in wide],
        "confused": several and most_confused(test, schema, best_few(test, results)[0]),
        "decisions": leaderboard.decisions(results),
        "intervals": sure,
        "sets": bool(sure and schema.classes),
        "short_groups": leaderboard.short_groups(results, results.comparison.leader),
        "thresholds": classes.thresholds(test, schema, results),
        "calibration": result_tables.calibration(results),
        "agreement": alike and scores.agreement_map(alike),
        "alike": alike and len(alike.models) == 2 and f"{alike.what}: {alike.alike_MM[0, 1]:.3f}",
        "disagreement": disagreement(test, schema, results),
        "validation": leaderboard.all_metrics(results, "valid"),
    }
    return content if any(content.values()) else None


def _why(run: Inputs) -> Content | None:
    """Why the models answer as they do, from ``explanations.json``; else how it is made."""
    if not run.results.done():
        return None
    try:
        found = read_explanations(run.paths)
    except ConfigError as error:
        return {"absent": str(error)}
    if found is None:
        return {"absent": f"The models are not explained. `sparkgpu report {run.paths.root.name}` does it."}
    names, models = ([model.name for model in of.models] for of in (run.results, found))
    decimals = result_tables.decimals_of(found)
    sentences = [one.differs for one in found.importances if one.differs]
    shuffles = [one.shuffles for row in found.importances for one in row.models.values()]
    return {
        "absent": "",
        "map": columns.importance_map(found, names),
        "dependence": columns.dependence(found, names, run.schema.target),
        "summary": found.summary and summary(found.summary, run.schema.target),
        "sentences": sentences[:_MOST_SENTENCES],
        "level": _level(found) if not sentences else "",
        "importances": result_tables.importances(found.importances, models, decimals),
        "leading": result_tables.importances(found.importances[:_LEADING], models, decimals),
        "found": found,
        "shuffles": sorted({min(shuffles), max(shuffles)}) if shuffles else [],
        "metric": metric_title(found.metric),
        "values": listed(f"{model.name} {number_text(model.value)}" for model in found.models),
        "took": seconds_text(found.seconds),
    }


def _level(found: Explanations) -> str:
    """That trees and network use the columns alike; empty if there was no time to compare them all."""
    measured = [set(one.models) for one in found.importances]
    if found.pair is None or not measured or not set.intersection(*measured).issuperset(found.pair):
        return ""
    return f"No column matters clearly more to {found.pair[0]} than to {found.pair[1]}, or less."


def _failures(run: Inputs) -> Content | None:
    """Where it fails: the groups of rows on which models are worse, and the most wrong rows of the leader."""
    test, schema = run.test, run.schema
    models = with_predictions(test, run.results)
    if not models or not test.labels.counts().any():
        return None
    leader = run.results.comparison.leader
    if leader not in models:
        leader = models[0]
    models = [leader, *(model for model in models if model != leader)]
    loss = "RMSE" if schema.task == "regression" else "log loss"
    return {
        "leader": leader,
        "judged": len(run.segments.get(leader, ())),
        "least_rows": LEAST_ROWS,
        "by_groups": leaderboard.by_groups(run.results, leader),
        "segments": failures.weakness_table(run.segments, models, loss),
        "wrong": failures.most_wrong(schema, test, run.features, leader, _leading_columns(run)),
        "classes": bool(schema.classes),
        "before": schema.held_out["test"].first if "test" in schema.held_out else 0,
    }


def _leading_columns(run: Inputs) -> Sequence[str]:
    """The user's columns, the most important first, if the models were explained."""
    try:
        explained = read_explanations(run.paths)
    except ConfigError:  # the section that shows them tells
        explained = None
    return [one.column for one in explained.importances] if explained else []


def _data(run: Inputs) -> Content:
    """The table: its checks, splits and columns; without ``profile.json`` only what the schema says."""
    schema, profile = run.schema, run.profile
    return {
        "schema": schema,
        "rows": data_tables.rows_text(schema),
        "splits": data_tables.splits(schema),
        "dropped": data_tables.dropped(schema),
        "withheld": profile and data_tables.withheld(profile),
        "profile": profile,
        "failed": [check.name for check in profile.checks if not check.passed] if profile else [],
        "columns": profile and data_tables.columns_of(profile, schema),
        "most_columns": data_tables.MOST_COLUMNS,
        "associations": columns.associations(profile.associations, len(profile.columns)) if profile else None,
    }


def _training(run: Inputs) -> Content | None:
    """The trials: how each was trained, its learning curve, and the settings that were searched."""
    found = run.results
    if not found.trials:
        return None
    return {
        "trials": result_tables.trials(found, found.comparison.metric),
        "notes": [(trial.name, note) for trial in found.done() for note in trial.notes],
        "searches": result_tables.searches(found),
        "curves": scores.learning(run.paths, found),
    }


def _machine(run: Inputs) -> Content:
    """The machine: its lanes, what they did over time, what several devices brought, where the time went."""
    paths, plan, found = run.paths, run.plan, run.results
    advice = read_optional(paths.advice, AdviceRecord)
    phases = seconds_by_phase(paths, found.phases_s)
    bench = scaling.measured(paths)
    return {
        "prediction": advice and result_tables.prediction(advice, found),
        "assumed": advice.assumptions if advice else (),
        "activity": machine.activity(paths, on_cluster=plan.master is not None),
        "timings": result_tables.timings(phases),
        "phases": machine.timings(phases),
        "lanes": result_tables.lanes(plan),
        "shares": scaling.shares(paths, plan, found),
        "busy": scaling.busy_sentence(paths, plan, found),
        "bench": bench and scaling.bench_table(bench.rows),
        "bench_title": bench.title if bench else "",
        "bench_notes": bench.notes if bench else (),
        "how_to_bench": "" if bench else scaling.how_to_measure(paths, plan, found),
    }


def _repeat(run: Inputs) -> Content:
    """How to repeat the run: its configuration, the reasons for automatic choices, versions, fingerprints."""
    configuration, about = run.paths.config, run.results.run
    return {
        "configuration": configuration.read_text("utf-8", "replace") if configuration.is_file() else "",
        "folder": str(run.paths.root),
        "source": run.schema.source,
        "fingerprint": run.schema.fingerprint,
        "started": about.started_at.replace("T", " ").replace("Z", " UTC"),
        "reasons": run.plan.reasons,
        "settings": run.settings_besides,
        "versions": {"sparkgpu": about.sparkgpu, **about.versions},
    }


class Section(NamedTuple):
    """One section: `id` names its templates and its place on the page, `title` its heading.

    With `explains` it reads the explanations of the models, which may still be made while others are.
    """

    id: str
    title: str
    content: Callable[[Inputs], Content | None]
    explains: bool = False


SECTIONS = (
    Section("result", "Result", _result),
    Section("quality", "Quality", _quality),
    Section("why", "Why", _why, explains=True),
    Section("failures", "Where it fails", _failures, explains=True),
    Section("data", "Data", _data),
    Section("training", "Training", _training),
    Section("machine", "Machine", _machine),
    Section("repeat", "Repeat it", _repeat),
)
