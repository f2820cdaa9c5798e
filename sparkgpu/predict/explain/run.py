"""Explains one run within a time limit: loads, measures what columns are worth, draws the leading ones.

Every model sees the same rows and the same shuffles. What there was no time for is left out, and said.
"""

from __future__ import annotations

import time

from sparkgpu.core.host.processor import usable_cores
from sparkgpu.core.rundir.explanations import ExplainedModel, Explanations
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.results import Results, finished_results
from sparkgpu.core.table.schema import read_schema
from sparkgpu.predict.explain.asking import Member
from sparkgpu.predict.explain.columns import user_columns
from sparkgpu.predict.explain.dependence import DRAWN_ROWS, MOST_ASKED, dependence_of
from sparkgpu.predict.explain.importance import importances
from sparkgpu.predict.explain.models import started
from sparkgpu.predict.explain.ranking import pair_of, ranked
from sparkgpu.predict.explain.sample import draw_sample
from sparkgpu.score.metrics import primary

_ROWS = 1_500
_SECONDS = 7.0
_MOST_SECONDS = 30.0
_WORK_S = 3.0
_LOADED_BY = 0.75  # of the time: without an answer until then a model is left out
_ENDING_S = 0.3  # to write the file


def explain(paths: RunPaths, seconds: float | None = None) -> Explanations:
    """The explanations of the run in `paths`, made within `seconds` of wall time.

    Without `seconds` it takes about 7, and up to 30 where libraries load slowly: half an answer in time would
    help nobody. Raises `ConfigError` if the folder holds no finished run, and `DataError` if its table cannot
    be read.
    """
    start = time.time()
    most_s = _MOST_SECONDS if seconds is None else seconds
    results = finished_results(paths)
    schema = read_schema(paths)
    members, notes = _members(paths, results)
    seed = results.trials[0].seed if results.trials else 0
    with started(members, schema, cores=usable_cores(), seed=seed, until=start + most_s) as own:
        own.notes += notes
        sample = draw_sample(paths, schema, _ROWS, seed)
        own.load(sample, start + _LOADED_BY * most_s)
        if seconds is None:
            own.until = min(max(start + _SECONDS, time.time() + _WORK_S), own.until)
        own.until -= _ENDING_S
        columns = user_columns(schema)
        found, rows = importances(own, columns, MOST_ASKED)
        pair = pair_of(results, set(found))
        in_order = ranked(columns, found, pair, results.comparison.metric)
        dependence = dependence_of(own, columns, in_order, pair)
    for name, reason in own.refused.items():
        what = "is not complete" if name in own.loaded else "is left out"
        own.notes.append(f"{name} {what}: {reason.rstrip('.')}.")
    return Explanations(
        metric=primary(schema.task),
        rows=rows,
        test_rows=schema.splits.get("test", len(sample)),
        dependence_rows=min(DRAWN_ROWS, len(sample)),
        columns=len(columns),
        seed=seed,
        seconds=round(time.time() - start, 2),
        models=tuple(
            ExplainedModel(name=member.name, engine=member.engine, trial=member.folder.name, value=value)
            for member in members
            if member.name in own.loaded and (value := own.loaded[member.name].value) is not None
        ),
        pair=pair,
        importances=in_order,
        dependence=dependence,
        notes=tuple(own.notes),
    )


def _members(paths: RunPaths, results: Results) -> tuple[list[Member], list[str]]:
    """The first finished trial of each model that is no blend, and what to say about the others."""
    members, notes = [], []
    for model in results.models:
        done = results.done(model.name)
        if not done or model.weights is not None:
            continue
        first, folder = done[0], paths.trial(done[0].name).root
        members.append(
            Member(name=model.name, engine=first.engine, folder=folder, temperature=first.temperature)
        )
        if len(done) > 1:
            notes.append(f"{model.name} has {len(done)} finished trials; the first, {first.name}, is shown.")
    return members, notes
