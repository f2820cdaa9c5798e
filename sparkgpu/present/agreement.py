"""Where the models' predictions agree, and who is right where two of them do not.

Limits: predictions averaged over a model's trials. N rows, C classes, M models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import number_text
from sparkgpu.present.curves import confusion
from sparkgpu.present.failures import prediction_text, row_cell, row_heading, truth_text
from sparkgpu.present.table_model import Cell, Table, number_cell, table_of, whole_cell
from sparkgpu.score.predictions import ModelPredictions
from sparkgpu.score.rows import FloatArray

_MOST_ROWS = 8
_MOST_CONFUSED = 10
_TENTH = 0.1
_SURE = 1.96  # standard errors


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How alike the models' predictions are, (M, M), from 0 to 1 (correlations may be below).

    `what` says in words how that is measured.
    """

    models: tuple[str, ...]
    alike_MM: FloatArray
    what: str


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """Two models: who is nearer to the truth where they differ, in words, and the rows that differ most."""

    title: str
    sentence: str
    rows: Table


def agreement(test: ModelPredictions, schema: TableSchema, results: Results) -> Agreement | None:
    """All models but blends, which are made of the others; None with fewer than two or constant ones."""
    models = _members(test, results)
    if len(models) < 2 or len(test.labels.label_N) < 2:
        return None
    means = [test.values[model] for model in models]
    if schema.task == "multiclass":
        decided_MN = np.array([mean_NC.argmax(axis=1) for mean_NC in means])
        weight_N = test.labels.counts()
        same_MMN = decided_MN[:, None] == decided_MN[None]
        what = "share of the rows on which both predict the same class"
        return Agreement(models=models, alike_MM=np.average(same_MMN, axis=2, weights=weight_N), what=what)
    values_MN = np.array([mean if mean.ndim == 1 else mean[:, 1] for mean in means])
    what = "correlation of the probabilities"
    if schema.task == "regression":
        values_MN = values_MN - test.labels.label_N  # good predictions are all correlated with the truth
        what = "correlation of the errors"
    if (values_MN.std(axis=1) == 0).any():
        return None
    return Agreement(models=models, alike_MM=np.corrcoef(values_MN), what=what)


def disagreement(test: ModelPredictions, schema: TableSchema, results: Results) -> Disagreement | None:
    """Trees and the network, or the first two models if one of these is not there."""
    models = _members(test, results)
    pair = ("trees", "neural") if {"trees", "neural"} <= set(models) else models[:2]
    counted_N = test.labels.counts() > 0
    if len(pair) < 2 or not counted_N.any():
        return None
    a, b = pair
    labels = test.labels.part(counted_N)
    of_a, of_b = (test.values[model][counted_N] for model in pair)
    if schema.task == "regression":
        apart_N = np.abs(of_a - of_b)
        loss_a_N, loss_b_N = np.abs(of_a - labels.label_N), np.abs(of_b - labels.label_N)
        sentence = _nearer(a, b, loss_a_N, loss_b_N, apart_N)
    else:
        apart_N = np.abs(of_a - of_b).sum(axis=1) / 2
        code_N = labels.label_N.astype(np.int64)
        right_a_N, right_b_N = (values.argmax(axis=1) == code_N for values in (of_a, of_b))
        differ_N = of_a.argmax(axis=1) != of_b.argmax(axis=1)
        own = np.arange(len(code_N))
        loss_a_N, loss_b_N = 1 - of_a[own, code_N], 1 - of_b[own, code_N]
        sentence = _right(a, b, right_a_N & differ_N, right_b_N & differ_N, int(differ_N.sum()), len(code_N))
    rows = []
    for row in np.argsort(-apart_N, kind="stable")[:_MOST_ROWS]:
        if apart_N[row] == 0:
            break
        nearer = a if loss_a_N[row] < loss_b_N[row] else b if loss_b_N[row] < loss_a_N[row] else "neither"
        rows.append(
            (
                row_cell(schema, labels.row_id_N[row]),
                *(
                    Cell(text=text, number=not schema.classes)
                    for text in (
                        truth_text(schema, labels.label_N[row]),
                        prediction_text(schema, of_a[row]),
                        prediction_text(schema, of_b[row]),
                    )
                ),
                Cell(text=nearer),
            )
        )  # fmt: skip
    headings = (row_heading(schema), f"true {schema.target}", a, b, "nearer")
    table = Table(columns=headings, rows=tuple(rows))
    return Disagreement(title=f"Where {a} and {b} disagree", sentence=sentence, rows=table)


def _members(test: ModelPredictions, results: Results) -> tuple[str, ...]:
    return tuple(model.name for model in results.models if model.name in test.values and not model.weights)


def _right(
    a: str, b: str, only_a_N: NDArray[np.bool_], only_b_N: NDArray[np.bool_], differ: int, rows: int
) -> str:
    """For classes: how often each is right where they name different classes."""
    if not differ:
        return f"{a} and {b} name the same class in all {rows:,} rows."
    for_a, for_b = int(only_a_N.sum()), int(only_b_N.sum())
    neither = differ - for_a - for_b
    none = f", of neither in {neither:,}" if neither else ""
    return (
        f"They name different classes in {differ:,} of {rows:,} rows ({100 * differ / rows:.3g} %): "
        f"the right one is that of {a} in {for_a:,}, of {b} in {for_b:,}{none}. {_sure(a, b, for_a, for_b)}"
    )


def _nearer(a: str, b: str, loss_a_N: FloatArray, loss_b_N: FloatArray, apart_N: FloatArray) -> str:
    """For numbers: who is nearer in the tenth of the rows where they differ most."""
    most = np.argsort(-apart_N, kind="stable")[: max(1, math.ceil(_TENTH * len(apart_N)))]
    for_a, for_b = int((loss_a_N < loss_b_N)[most].sum()), int((loss_b_N < loss_a_N)[most].sum())
    least = number_text(float(apart_N[most].min()), 3)
    return (
        f"In the {len(most):,} rows where they differ most (by {least} or more), the nearer prediction is "
        f"that of {a} in {for_a:,}, of {b} in {for_b:,}. {_sure(a, b, for_a, for_b)}"
    )


def _sure(a: str, b: str, for_a: int, for_b: int) -> str:
    """Whether one of them is right more often beyond chance: the sign test's normal approximation."""
    total = for_a + for_b
    if not total or abs(for_a - for_b) <= max(_SURE * math.sqrt(total), 3):
        return "That is no more than chance for either."
    ahead = a if for_a > for_b else b
    return f"That favours {ahead}, beyond chance."


def most_confused(test: ModelPredictions, schema: TableSchema, models: Sequence[str]) -> Table:
    """The classes that the models most often take for another: rows, and their share of the true class."""
    shares = {model: confusion(test.labels, test.values[model]) for model in models}
    if not shares:
        return Table(columns=(), rows=())
    rows_C = np.bincount(test.labels.label_N.astype(np.int64), test.labels.counts(), len(schema.classes))
    mean_CC = np.round(np.mean(list(shares.values()), axis=0) * rows_C[:, None], 6)
    np.fill_diagonal(mean_CC, 0.0)
    worst = np.argsort(-mean_CC, axis=None, kind="stable")[:_MOST_CONFUSED]
    pairs = np.transpose(np.unravel_index(worst, mean_CC.shape))

    def share_of(model: str) -> Callable[[tuple[int, int]], Cell]:
        return lambda pair: number_cell(float(shares[model][pair]), lambda share: f"{100 * share:.1f} %")

    return table_of(
        [(int(true), int(predicted)) for true, predicted in pairs if mean_CC[true, predicted] > 0],
        {
            "true class": lambda pair: schema.classes[pair[0]],
            "taken for": lambda pair: schema.classes[pair[1]],
            "rows of the class": lambda pair: whole_cell(rows_C[pair[0]]),
            **{model: share_of(model) for model in models},
        },
    )
