"""What a reader of the verdict has to know: a model that was cut off, or that learned nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sparkgpu.config.registry.engines import branch_of
from sparkgpu.rundir.results import DoneTrial
from sparkgpu.runs.pool import Pooled
from sparkgpu.score import metrics
from sparkgpu.score.predictions import Labels
from sparkgpu.table.schema import TableSchema
from sparkgpu.words import counted, metric_title, number_text

_LIMITS = {"trees": ("tree", "ntrees"), "neural": ("epoch", "epochs")}
_LOSS = {"binary": "log_loss", "multiclass": "log_loss", "regression": "rmse"}


def caveats(
    schema: TableSchema, trials: Sequence[DoneTrial], pooled: Mapping[str, Pooled], test: Labels
) -> tuple[str, ...]:
    """One sentence for each caveat on the `pooled` predictions of models and on their `trials`."""
    return (*_cut_off(trials), *_no_better_than_a_constant(schema, pooled, test))


def _cut_off(trials: Sequence[DoneTrial]) -> list[str]:
    found = []
    for model in dict.fromkeys(trial.model for trial in trials):
        own = [trial for trial in trials if trial.model == model]
        short = [trial for trial in own if trial.still_improving]
        if not short:
            continue
        unit, key = _LIMITS[branch_of(own[0].engine)]
        which = "" if len(own) == 1 else f" in {len(short)} of {counted(len(own), 'trial')}"
        if any(trial.out_of_time for trial in short):
            reached = max(trial.steps or 0 for trial in short)
            found.append(
                f"{model}: the time limit ended training at {counted(reached, unit)}{which} while the "
                "validation rows still gained; with more time it may be better"
            )
            continue
        limit = f"{branch_of(own[0].engine)}.{key}"
        most = max(trial.most_steps or 0 for trial in short)
        found.append(
            f"{model}: training reached its limit of {counted(most, unit)}{which} while the validation rows "
            f"still gained; a larger {limit} or another preset may give a better model"
        )
    return found


def _no_better_than_a_constant(schema: TableSchema, pooled: Mapping[str, Pooled], test: Labels) -> list[str]:
    """The models whose loss on the test rows is no smaller than that of the rows' own mean."""
    metric = _LOSS[schema.task]
    share_N = test.counts() / test.counts().sum()
    if schema.classes:
        mean = np.bincount(test.label_N.astype(np.int64), weights=share_N, minlength=len(schema.classes))
    else:
        mean = np.asarray(share_N @ test.label_N)
    constant = np.broadcast_to(mean, (len(share_N), *mean.shape))

    def loss(prediction: np.ndarray) -> float:
        found = metrics.mean_loss(schema.task, test.label_N, prediction, test.weight_N)
        return math.sqrt(found) if metric == "rmse" else found

    least = loss(constant)
    title = metric_title(metric)
    return [
        f"{name}: no better than one constant prediction for all test rows ({title} {number_text(found)} "
        f"against {number_text(least)})"
        for name, of_model in pooled.items()
        if (found := loss(of_model.test)) >= least
    ]
