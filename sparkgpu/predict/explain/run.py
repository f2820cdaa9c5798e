"""Explains one run within a time limit: loads, measures what columns are worth, draws the leading ones.

Every model sees the same rows and the same shuffles. What there was no time for is left out, and said.
"""

from __future__ import annotations

import time

from sparkgpu.core.rundir.explanations import ExplainedModel, Explanations
from sparkgpu.core.rundir.metrics_json import finished_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import read_schema
from sparkgpu.predict.explain.columns import user_columns
from sparkgpu.predict.explain.dependence import DRAWN_ROWS, MOST_ASKED, dependence_of
from sparkgpu.predict.explain.importance import importances, pair_of, ranked
from sparkgpu.predict.explain.models import Models, load_models
from sparkgpu.predict.explain.sample import draw_sample
from sparkgpu.predict.explain.summary import summary_of
from sparkgpu.score.metrics import primary

_ROWS = 1_500
_SECONDS = 7.0
_MOST_SECONDS = 30.0
_WORK_S = 3.0
_LOADED_BY = 0.75  # of the time: a model that is not loaded by then is left out
_ENDING_S = 0.3  # to write the file


def explain(paths: RunPaths, seconds: float | None = None) -> Explanations:
    """The explanations of the run in `paths`, made within `seconds` of wall time.

    Without `seconds` it takes about 7, and up to 30 where libraries load slowly: half an answer in time would
    help nobody. Only the import of a library is not cut short. Raises `ConfigError` if the folder holds no
    finished run, and `DataError` if its table cannot be read.
    """
    start = time.monotonic()
    most_s = _MOST_SECONDS if seconds is None else seconds
    results = finished_results(paths)
    schema = read_schema(paths)
    seed = results.trials[0].seed if results.trials else 0
    sample = draw_sample(paths, schema, _ROWS, seed)
    models, notes = load_models(paths, results, schema, sample, start + _LOADED_BY * most_s)
    until = start + most_s
    if seconds is None:
        until = min(max(start + _SECONDS, time.monotonic() + _WORK_S), until)
    own = Models(models=models, schema=schema, sample=sample, seed=seed, until=until - _ENDING_S, notes=notes)
    columns = user_columns(schema)
    found, rows = importances(own, columns, MOST_ASKED)
    pair = pair_of(results, set(found))
    in_order = ranked(columns, found, pair, results.comparison.metric)
    summary = summary_of(own, columns)
    dependence = dependence_of(own, columns, in_order, pair)
    return Explanations(
        metric=primary(schema.task, schema.metric),
        rows=rows,
        test_rows=schema.splits.get("test", len(sample)),
        dependence_rows=min(DRAWN_ROWS, len(sample)),
        columns=len(columns),
        seed=seed,
        seconds=round(time.monotonic() - start, 2),
        models=tuple(
            ExplainedModel(name=one.name, engine=one.trial.engine, trial=one.trial.name, value=one.value)
            for one in models
            if one.value is not None
        ),
        pair=pair,
        importances=in_order,
        dependence=dependence,
        summary=summary,
        notes=tuple(own.notes),
    )
