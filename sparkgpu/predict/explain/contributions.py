"""What each of the user's columns added to each row's prediction: Shapley values, which add up with a base.

Of trees they are the library's own TreeSHAP (Lundberg et al., Nature Machine Intelligence 2, 2020): exact,
and of the margin. Of any other model they are sampled: columns turn from the values of a background row to
the row's own in a random order, and in the reverse one (Mitchell et al., "Sampling Permutations for Shapley
Value Estimation", JMLR 23, 2022). The package shap does that on one matrix; here a row is numbers and codes,
and a column may be several of them.

N rows, G classes or 1, F features, M columns of the user, B background rows, J pairs of a row and one of
them, R rows that are made of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparkgpu.core.errors import ConfigError, TrialError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import Feature, SplitName, TableSchema
from sparkgpu.predict.explain.sample import read_some
from sparkgpu.predict.output import PREDICTION, typed_classes
from sparkgpu.prepare.encoding import Encoder
from sparkgpu.prepare.pairs import fill_pairs
from sparkgpu.score.rows import FloatArray
from sparkgpu.trials.saved_model import largest_difference

SAMPLES = 16
"""Background rows for each row, by default."""

_TOLERANCE = 1e-4
_SEED = 7
_DRAWN_FROM = 1_000
_MOST_MIXED = 65_536  # rows, and
_MOST_VALUES = 8_000_000
_BLOCK = 256

Member = tuple[float, float | None, Any]
"""A trial's weight, temperature and model."""

Explain = Callable[[Rows], "Contributions"]


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """`added_NGM` and `base_NG` add up to the prediction; `scale` says of what they are.

    With two classes they are of the second. `error_NGM` are standard errors; None where nothing is sampled.
    """

    scale: str
    base_NG: FloatArray
    added_NGM: FloatArray
    error_NGM: FloatArray | None = None

    def table(self, schema: TableSchema, columns: Sequence[str], first: int) -> dict[str, pa.Array]:
        """A line for each row, counted on from `first`, and class."""
        count, groups = self.base_NG.shape
        found: dict[str, Any] = {"row": np.repeat(np.arange(first, first + count), groups)}
        if schema.classes:
            found["class"] = typed_classes(schema)[-groups:].tolist() * count
        found |= {"scale": [self.scale] * (count * groups), "base": self.base_NG.ravel()}
        found |= {f"contribution_{name}": self.added_NGM[..., m].ravel() for m, name in enumerate(columns)}
        found[PREDICTION] = (self.base_NG + self.added_NGM.sum(axis=2)).ravel()
        if self.error_NGM is not None:
            found |= {f"error_{name}": self.error_NGM[..., m].ravel() for m, name in enumerate(columns)}
        return {name: pa.array(values) for name, values in found.items()}


def explained(
    batches: Iterable[pa.RecordBatch], schema: TableSchema, encoder: Encoder, explain: Explain, first: int = 0
) -> Iterator[dict[str, pa.Array]]:
    """The `Contributions.table` of the rows of all batches, some rows at a time."""
    for batch in batches:
        for begin in range(0, batch.num_rows, _BLOCK):
            rows = encoder.rows(batch.slice(begin, _BLOCK))
            yield explain(rows).table(schema, encoder.columns, first)
            first += len(rows.row_id_N)


def exact(
    schema: TableSchema, columns: Sequence[str], members: Sequence[Member], rows: Rows
) -> Contributions:
    """The mean of the contributions to the margins of all members.

    Raises `TrialError` if what a library gives does not add up to what its model predicts.
    """
    total_NGF: Any = 0.0
    scale = ""
    for weight, temperature, model in members:
        found_NGF = np.asarray(model.contributions(rows), np.float64)
        scale = _scale(schema, found_NGF.sum(axis=2), np.asarray(model.predict(rows), np.float64))
        total_NGF = total_NGF + weight / (temperature or 1.0) * found_NGF
    belongs_FM = (_owners(schema.features, columns)[:, None] == np.arange(len(columns))).astype(np.float64)
    place_of = {feature.name: place for place, feature in enumerate(schema.features)}
    for place, feature in enumerate(schema.features):
        if feature.pair:  # half to each
            belongs_FM[place] = belongs_FM[[place_of[name] for name in feature.pair]].mean(axis=0)
    return Contributions(scale=scale, base_NG=total_NGF[..., -1], added_NGM=total_NGF[..., :-1] @ belongs_FM)


def _scale(schema: TableSchema, margin_NG: FloatArray, values: FloatArray) -> str:
    """The scale of margins that are those of `values` (N,) or probabilities (N, C)."""
    with np.errstate(over="ignore"):
        if schema.task == "multiclass":
            share_NG = np.exp(margin_NG - margin_NG.max(axis=1, keepdims=True))
            links = {"log score": share_NG / share_NG.sum(axis=1, keepdims=True)}
        elif schema.task == "binary":
            links = {"log-odds": 1 / (1 + np.exp(-margin_NG))}
            values = values[:, 1:]
        else:
            links = {"value": margin_NG, "log of the value": np.exp(margin_NG)}
    for scale, found in links.items():
        if largest_difference(values.reshape(found.shape), found) <= _TOLERANCE:
            return scale
    raise TrialError(
        "the contributions of its library do not add up to what the model predicts. Please report this."
    )


def sampling(
    paths: RunPaths, schema: TableSchema, columns: Sequence[str], predict: Callable[[Rows], FloatArray],
    samples: int,
) -> Explain:  # fmt: skip
    """Explains what `predict` gives beside so many validation rows (training rows, where those are few).

    They are spread evenly over the predictions of a larger sample, so that their mean, the base, is close to
    that of all. A row's contributions do not depend on the rows beside it. Raises `ConfigError` if `samples`
    are below 2, or the run's rows are not there.
    """
    if samples < 2:
        raise ConfigError(f"samples = {samples}: at least 2 are needed to tell an error. Give 16 or so.")
    split: SplitName = "valid" if schema.splits.get("valid", 0) >= samples else "train"
    if not paths.split(split).is_dir():
        raise ConfigError(
            f"{paths.root}: it lacks the rows of the run ({split}), which this model is explained with. Use "
            "the whole folder of the run, or a single model of trees."
        )
    random = np.random.default_rng(_SEED)
    read = read_some(paths, schema, split, _DRAWN_FROM, random)
    drawn = read.part(random.permutation(len(read.label_N))[:_DRAWN_FROM])
    value_NG = predict(drawn).reshape(len(drawn.label_N), -1)
    order_N = np.argsort(value_NG[:, value_NG.var(axis=0).argmax()], kind="stable")
    num_background = min(samples, len(order_N))
    at_B = (np.arange(num_background) + random.random()) * len(order_N) / num_background
    background = drawn.part(order_N[at_B.astype(np.int64)])
    rank_BM = random.permuted(np.tile(np.arange(len(columns)), (num_background, 1)), axis=1)
    return lambda rows: _sampled(schema, columns, predict, background, rank_BM, rows)


def _sampled(
    schema: TableSchema, columns: Sequence[str], predict: Callable[[Rows], FloatArray], background: Rows,
    rank_BM: Any, rows: Rows,
) -> Contributions:  # fmt: skip
    num_background, count = rank_BM.shape
    owner_F, owner_K = _owners(schema.numeric, columns), _owners(schema.categorical, columns)
    outputs = slice(1, None) if schema.task == "binary" else slice(None)
    base_BG = predict(background).reshape(num_background, -1)[:, outputs]
    sum_NMG = np.zeros((len(rows.label_N), count, base_BG.shape[1]))
    square_NMG = np.zeros_like(sum_NMG)
    walk = 2 * (count + 1)
    most = min(_MOST_MIXED, _MOST_VALUES // max(len(schema.features), 1)) // walk or 1
    for begin in range(0, len(rows.label_N) * num_background, most):
        pair_J = np.arange(begin, min(begin + most, len(rows.label_N) * num_background))
        row_J, other_J = np.divmod(pair_J, num_background)
        # Which columns are the row's own: of the first none, then one more each; and the others.
        own = rank_BM[other_J][:, None, :] < np.arange(count + 1)[:, None]
        own_RM = np.stack([own, ~own], axis=1).reshape(-1, count)
        row_R, other_R = np.repeat(row_J, walk), np.repeat(other_J, walk)
        mixed = Rows(
            row_id_N=np.arange(len(row_R)),
            label_N=rows.label_N[row_R],
            numeric_NF=np.where(own_RM[:, owner_F], rows.numeric_NF[row_R], background.numeric_NF[other_R]),
            codes_NK=np.where(own_RM[:, owner_K], rows.codes_NK[row_R], background.codes_NK[other_R]),
        )
        fill_pairs(schema, mixed.numeric_NF)
        values = predict(mixed).reshape(len(pair_J), 2, count + 1, -1)[..., outputs]
        step = np.diff(values, axis=2)
        by_rank = (step[:, 0] - step[:, 1]) / 2
        added_JMG = np.take_along_axis(by_rank, rank_BM[other_J][:, :, None], axis=1)
        np.add.at(sum_NMG, row_J, added_JMG)
        np.add.at(square_NMG, row_J, np.square(added_JMG))
    mean_NMG = sum_NMG / num_background
    spread_NMG = np.maximum(square_NMG / num_background - np.square(mean_NMG), 0.0)
    return Contributions(
        scale="probability" if schema.classes else "value",
        base_NG=np.tile(base_BG.mean(axis=0), (len(mean_NMG), 1)),
        added_NGM=np.moveaxis(mean_NMG, 1, 2),
        error_NGM=np.moveaxis(np.sqrt(spread_NMG / max(num_background - 1, 1)), 1, 2),
    )


def _owners(features: Sequence[Feature], columns: Sequence[str]) -> Any:
    """For each feature the place of the user's column that it is of."""
    place = {name: number for number, name in enumerate(columns)}
    return np.array([place[feature.source] for feature in features], dtype=np.int64)
