"""How a run divides the seconds of its time limit: between its start, its models and its end.

Pure arithmetic on measurements of one server core (benchmarks/results/2026-11-whole-runs.md).
"""

from __future__ import annotations

from sparkgpu.core.table.schema import TableSchema

_START_S = 20.0
"""Before the first tree: Spark, the table, H2O. Only for guesses made before the table is known."""
_END_S = 3.0
_END_S_PER_ROW = 1e-5
_END_S_PER_TRIAL = 0.03  # several scores each; few of the planned ones may have trained
_USED = 0.8
"""The share of its time in which a model is planned to be ready: machines differ."""
_FEWEST_S = 4.0
_SAVING_S = 3.0
# Engines predict and score after the last tree; several classes have as many times the trees.
_AFTER_TREES = 0.25
_AFTER_TREES_OF_CLASSES = 0.5
_LEAST_FIT_S = 1.0

PAGE_S = 3.0
"""For making the report's page."""
_EXPLAINED_S = 8.0
_EXPLAINED_SHARE = 0.05
LEAST_EXPLAINED_S = 2.5
"""Less does not do for explaining the models: the libraries take about as long to load."""

MOST_REPEATS = 12
"""So many seeds, if time is left: the mean of more gains nothing."""
MOST_REPEATS_OF_FOLDS = 6


def training_ends(deadline: float, schema: TableSchema, models: int, trials: int) -> float:
    """When all trials have to be done, so that the result is there at `deadline`."""
    rows = schema.splits["valid"] + schema.splits["test"]
    return deadline - (_END_S + _END_S_PER_ROW * rows) * max(1.0, models / 3) - _END_S_PER_TRIAL * trials


def explained_s(limit_s: float) -> float:
    """The seconds of a time limit that are kept for explaining the models and making the page."""
    return PAGE_S + min(_EXPLAINED_S, max(LEAST_EXPLAINED_S, _EXPLAINED_SHARE * limit_s))


def planned_s(limit_s: float, models: int) -> float:
    """The seconds that one of `models` models of a lane's branch is planned to train."""
    return max(_FEWEST_S, _USED * (limit_s - _START_S) / max(1, models))


def fit_s_of_trees(left_s: float, schema: TableSchema) -> float:
    """The seconds for growing trees if everything about them has to be done in `left_s` seconds."""
    after = _AFTER_TREES_OF_CLASSES if len(schema.classes) > 2 else _AFTER_TREES
    return max(_LEAST_FIT_S, (left_s - _SAVING_S) / (1 + after))
