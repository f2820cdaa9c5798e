"""How long a run takes and how much memory, from a small run of the same table: pure arithmetic.

A run = the table is ready + the longer of the two branches, which share the cores of their lane + scores.
The report follows the result and is not counted. All that the small run showed is taken from it and
scaled with the rows:

    an epoch        with the training rows: as many steps of as many rows
    a round         by `plan.tree_defaults.round_s` of the whole table over that of the sample
    reading         with the rows
    preparing, handing over, predicting by trees: fixed as measured, and so many seconds a value (or a row
                    and level of a tree), times how much slower this machine is than the one of the constants

How many rounds and epochs early stopping leaves is not known before the run: `expected_steps` states
what is expected. The constants were fitted to whole runs of covertype and nycflights_delay with one and two
lanes, on the machine of benchmarks/results/2026-11-whole-runs.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sparkgpu.core.config.context_keys import ContextParameters
from sparkgpu.core.config.parameters import NeuralParameters, Parameters, TreesParameters
from sparkgpu.core.config.registry.engines import BRANCHES, Branch
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize, each_round_s
from sparkgpu.ops.advise.sample import Sample
from sparkgpu.ops.advise.speed import MachineSpeed, Piece

_BEGIN_S = 6.5  # until the trees of a small table begin: this machine's own time over it tells its speed
_PREPARE_S = _HAND_OVER_S = 3e-8  # for a value
_SCORE_S = 1e-8  # for a row and a level of a tree
_END_ROW_S = 3e-6  # for a scored row
_WORD_BYTES, _NUMBER_BYTES, _FLAG_BYTES = 60.0, 24.0, 7.0  # for a value of that kind
_MANY_ROWS = 100_000


def expected_steps(parameters: Parameters, size: TableSize) -> int:
    """The epochs or rounds that are expected before early stopping.

    From 100,000 training rows on epochs are few, and all are used; so are the rounds with more than two
    classes (covertype), and else about three quarters (nycflights_delay). All epochs are used with more than
    two classes, whose networks learn by Muon. Else most networks stopped after 26 to 48 % of the epochs
    (adult, ames_housing, german_credit; but diamonds after 93 %) and trees after 9 to 25 % of the rounds.
    """
    if isinstance(parameters, ContextParameters):
        return 1
    has_many, is_multiclass = size.train_rows >= _MANY_ROWS, size.task == "multiclass"
    if isinstance(parameters, NeuralParameters):
        most, stops, share = parameters.epochs, parameters.patience, 1.0 if has_many or is_multiclass else 0.4
    else:
        most, stops = parameters.ntrees, parameters.early_stopping_rounds
        share = (1.0 if is_multiclass else 0.75) if has_many else 0.2
    return max(1, round(most * share)) if stops else most


def branch_ends(
    works: Mapping[Branch, Sequence[Piece]], begins: Mapping[Branch, float]
) -> dict[Branch, float]:
    """When each branch of a lane has done its trials, if both begin at `begins` and share the cores.

    While both are at work a step takes `step_s`; when one has ended, the other's steps take `free_step_s`.
    """
    shared = [_end(works[branch], begins[branch], math.inf) for branch in works]
    free_at = min(shared) if len(shared) > 1 else 0.0
    return {branch: _end(works[branch], begins[branch], free_at) for branch in works}


def _end(works: Sequence[Piece], now: float, free_at: float) -> float:
    """The end of trials one after the other; from `free_at` on, steps take less."""
    for work in works:
        now += work.before_s
        shared = min(work.steps, max(0.0, free_at - now) / max(work.step_s, 1e-9))
        now += shared * work.step_s + (work.steps - shared) * work.free_step_s + work.after_s
    return now


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a run is expected to take.

    `branches_s` are the ends of the branches of the busiest lane, since the start. `epoch_s` is an epoch with
    the cores of the lane, on one device.
    """

    wall_s: float
    ready_s: float
    branches_s: Mapping[Branch, float]
    end_s: float
    peak_rss_bytes: int
    peak_device_bytes: int | None
    epoch_s: float


def predict(found: MachineSpeed, plan: Plan) -> Prediction:
    """The whole run of `plan`, whose small run is `found`."""
    sample = found.sample
    slower = min(max((found.ready_s + found.jvm_s) / _BEGIN_S, 0.3), 4.0)
    more_rows = max(0, sample.whole_rows - sample.rows)
    more_values = more_rows * found.size.num_features
    ready_s = found.ready_s + slower * _PREPARE_S * more_values
    begins = {"trees": ready_s + found.jvm_s, "neural": ready_s}
    ends: list[dict[Branch, float]] = []
    for lane in plan.lanes:
        works: dict[Branch, list[Piece]] = {}
        for branch in BRANCHES:
            for spec in plan.of(lane.index, branch):
                works.setdefault(branch, []).append(_work(found, spec.model, slower))
        if "trees" in works:  # the first of them waits for the rows
            first, *further = works["trees"]
            handed = first.before_s + slower * _HAND_OVER_S * more_values
            works["trees"] = [replace(first, before_s=handed), *further]
        ends.append(branch_ends(works, {branch: begins[branch] for branch in works}))
    busiest = max(ends, key=lambda end: max(end.values(), default=0.0))
    end_s = found.end_s + slower * _END_ROW_S * more_rows * _scored_share(found)
    wall_s = max(busiest.values(), default=ready_s) + end_s
    network, on_gpu = found.pieces.get("neural"), found.peak_device_bytes
    return Prediction(
        wall_s=wall_s if plan.time_limit is None else plan.time_limit,
        ready_s=ready_s,
        branches_s=busiest,
        end_s=end_s,
        peak_rss_bytes=found.peak_rss_bytes + int((1 + len(plan.lanes)) * more_rows * row_bytes(sample)),
        peak_device_bytes=None if on_gpu is None else on_gpu + 4 * more_values,  # rows stay on the GPU
        epoch_s=0.0 if network is None else network.free_step_s * found.train_ratio,
    )


def _work(found: MachineSpeed, model: str, slower: float) -> Piece:
    piece, parameters = found.pieces[model], found.resolved.of(model)
    whole, rows, steps = found.sample.whole_rows, found.sample.rows, expected_steps(parameters, found.size)
    if not isinstance(parameters, TreesParameters):
        before_s, ratio = piece.before_s * whole / rows, found.train_ratio
        more_s = piece.predict_s * (whole / rows - 1)
    else:
        before_s, ratio = piece.before_s, _round_ratio(found, parameters)
        levels = math.log2(max(parameters.max_leaves or 2 ** (parameters.max_depth or 6), 2))
        scored = (steps * whole - piece.steps * rows) * _scored_share(found)
        more_s = max(0.0, slower * _SCORE_S * levels * found.size.trees_per_round * scored)
    return replace(
        piece,
        before_s=before_s,
        steps=steps,
        step_s=piece.step_s * ratio,
        free_step_s=piece.free_step_s * ratio,
        after_s=piece.after_s + more_s,
    )


def _round_ratio(found: MachineSpeed, parameters: TreesParameters) -> float:
    """A round of the whole table over one of the sample; small trees that are tried as well come on top."""
    small = replace(found.size, train_rows=found.train_rows)
    each_s = each_round_s(parameters, found.size)
    if parameters.try_smaller:
        each_s += each_round_s(parameters.model_copy(update={"max_leaves": 0, "max_depth": 3}), found.size)
    return each_s / each_round_s(parameters, small)


def row_bytes(sample: Sample) -> float:
    """What a further row adds to the memory of a lane, and once more of the process that prepares the table.

    A lane holds it in Java, in XGBoost and in torch.
    """
    numbers = max(0, sample.size.num_features - sample.num_words - sample.num_flags)
    return _WORD_BYTES * sample.num_words + _FLAG_BYTES * sample.num_flags + _NUMBER_BYTES * numbers


def _scored_share(found: MachineSpeed) -> float:
    return 1 - found.size.train_rows / max(1, found.sample.whole_rows)
