"""How long a run takes and how much memory, from a small run of the same table: pure arithmetic.

A run = the table is ready + the longer of the two branches, which share the cores of their lane + scores.
The report follows the result and is not counted. All that the small run showed is taken from it and
scaled with the rows:

    an epoch        with the training rows: as many steps of as many rows
    a round         by `plan.tree_defaults.round_s` of the whole table over that of the sample
    reading         with the rows
    preparing, handing over, predicting by trees: fixed as measured, and so many seconds a value (or a row
                    and level of a tree), from `REFERENCE`, times how much slower this machine is

How many rounds and epochs early stopping leaves is not known before the run: `expected_shares` states
what is expected.

n rows of the sample, N of the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sparkgpu.advise.calibrate import Calibration
from sparkgpu.advise.sample import Sample
from sparkgpu.advise.small_run import Piece
from sparkgpu.config.parameters import NeuralParameters, TreesParameters
from sparkgpu.config.registry.engines import BRANCHES, Branch
from sparkgpu.plan.plan import Plan
from sparkgpu.plan.tree_defaults import TableSize, each_round_s
from sparkgpu.plan.trial_spec import TrialSpec


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Seconds on the machine of benchmarks/results/2026-11-whole-runs.md, and bytes.

    `begin_s` pass there until the trees of a small table begin; this machine's own time over it tells how
    much slower it is. `prepare_s` and `hand_over_s` are for a value, `score_s` for a row and a level of a
    tree, `end_row_s` for a scored row, bytes for a value by its kind. All were fitted to whole runs of
    covertype and nycflights_delay with one and two lanes.
    """

    begin_s: float = 6.5
    prepare_s: float = 3e-8
    hand_over_s: float = 3e-8
    score_s: float = 1e-8
    end_row_s: float = 3e-6
    word_bytes: float = 60.0
    number_bytes: float = 24.0
    flag_bytes: float = 7.0


REFERENCE = Reference()


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The share of the most rounds and epochs that a run is expected to train before it stops early."""

    rounds: float
    epochs: float


_MANY_ROWS = 100_000


def expected_shares(size: TableSize) -> Shares:
    """What is expected of a table of this size.

    From 100,000 training rows on epochs are few, and all are used; so are the rounds with more than two
    classes (covertype), and else about three quarters (nycflights_delay). All epochs are used with more than
    two classes, whose networks learn by Muon. Else most networks stopped after 26 to 48 % of the epochs
    (adult, ames_housing, german_credit; but diamonds after 93 %) and trees after 9 to 25 % of the rounds.
    """
    if size.train_rows >= _MANY_ROWS:
        return Shares(rounds=1.0 if size.task == "multiclass" else 0.75, epochs=1.0)
    return Shares(rounds=0.2, epochs=1.0 if size.task == "multiclass" else 0.4)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one trial of a lane needs, in seconds: `steps` of `step_s` each while the other branch trains.

    `free_step_s` is a step once the other branch has ended; `before_s` and `after_s` surround the steps.
    """

    before_s: float
    steps: int
    step_s: float
    free_step_s: float
    after_s: float


def branch_ends(
    works: Mapping[Branch, Sequence[Work]], begins: Mapping[Branch, float]
) -> dict[Branch, float]:
    """When each branch of a lane has done its work, if both begin at `begins` and share the cores.

    While both are at work a step takes `step_s`; when one has ended, the other's steps take `free_step_s`.
    """
    alone = {branch: _length(works[branch], begins[branch], math.inf) for branch in works}
    if len(alone) < 2:
        return {branch: _length(works[branch], begins[branch], begins[branch]) for branch in works}
    first = min(alone, key=lambda branch: alone[branch])
    return {
        branch: end if branch == first else _length(works[branch], begins[branch], alone[first])
        for branch, end in alone.items()
    }


def _length(works: Sequence[Work], begin: float, free_at: float) -> float:
    """The end of trials one after the other; from `free_at` on, steps take less."""
    now = begin
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
    steps_per_epoch: int
    shares: Shares


def predict(found: Calibration, plan: Plan) -> Prediction:
    """The whole run of `plan`, whose small run is `found`."""
    observed, sample = found.observed, found.sample
    reference = REFERENCE
    slower = min(max((observed.ready_s + observed.jvm_s) / reference.begin_s, 0.3), 4.0)
    more_rows = max(0, sample.whole_rows - sample.rows)
    cells = more_rows * found.size.num_features
    shares = expected_shares(found.size)
    ready_s = observed.ready_s + slower * reference.prepare_s * cells
    ends: list[dict[Branch, float]] = []
    for lane in plan.lanes:
        works: dict[Branch, Sequence[Work]] = {}
        for branch in BRANCHES:
            trials = plan.of(lane.index, branch)
            own = [_work(found, spec, shares, slower, first=place == 0) for place, spec in enumerate(trials)]
            if own:
                works[branch] = own
        begins = {branch: ready_s + (observed.jvm_s if branch == "trees" else 0.0) for branch in works}
        ends.append(branch_ends(works, begins))
    busiest = max(ends, key=lambda end: max(end.values(), default=0.0))
    scored = more_rows * (1 - _train_share(found))
    end_s = observed.end_s + slower * reference.end_row_s * scored
    wall_s = max(busiest.values(), default=ready_s) + end_s
    if plan.time_limit is not None:
        wall_s = plan.time_limit
    more_bytes = (1 + len(plan.lanes)) * more_rows * row_bytes(sample)
    network = observed.pieces.get("neural")
    epoch_s = 0.0
    if network is not None:
        epoch_s = (network.free_step_s or network.step_s) * _train_ratio(found)
    steps = -(-found.size.train_rows // found.resolved.neural.batch_size)
    return Prediction(
        wall_s=wall_s,
        ready_s=ready_s,
        branches_s=busiest,
        end_s=end_s,
        peak_rss_bytes=observed.peak_rss_bytes + int(more_bytes),
        peak_device_bytes=_device_bytes(found),
        epoch_s=epoch_s,
        steps_per_epoch=max(1, steps),
        shares=shares,
    )


def _work(found: Calibration, spec: TrialSpec, shares: Shares, slower: float, *, first: bool) -> Work:
    piece = found.observed.pieces[spec.model]
    parameters = found.resolved.of(spec.model)
    if isinstance(parameters, NeuralParameters):
        return _network(found, piece, parameters, shares)
    return _trees(found, piece, parameters, shares, slower, first=first)


def _network(found: Calibration, piece: Piece, parameters: NeuralParameters, shares: Shares) -> Work:
    ratio = _train_ratio(found)
    rows = found.sample.whole_rows / found.sample.rows
    epochs = parameters.epochs * (shares.epochs if parameters.patience else 1.0)
    return Work(
        before_s=piece.before_s * rows + piece.overhead_s,
        steps=max(1, round(epochs)),
        step_s=piece.step_s * ratio,
        free_step_s=(piece.free_step_s or piece.step_s) * ratio,
        after_s=piece.after_s + piece.predict_s * (rows - 1),
    )


def _trees(
    found: Calibration,
    piece: Piece,
    parameters: TreesParameters,
    shares: Shares,
    slower: float,
    *,
    first: bool,
) -> Work:
    whole, sample, size = found.sample.whole_rows, found.sample.rows, found.size
    schema = found.observed.schema
    small = replace(size, train_rows=schema.splits["train"])
    ratio = each_round_s(parameters, size) / each_round_s(parameters, small)
    rounds = max(1, round(parameters.ntrees * (shares.rounds if parameters.early_stopping_rounds else 1.0)))
    per_round = len(schema.classes) if size.task == "multiclass" else 1
    levels = math.log2(max(parameters.max_leaves or 2 ** (parameters.max_depth or 6), 2))
    scored = (rounds * whole - found.rounds * sample) * (1 - _train_share(found))
    scoring = slower * REFERENCE.score_s * levels * per_round * scored
    handing = slower * REFERENCE.hand_over_s * (whole - sample) * size.num_features if first else 0.0
    free = piece.free_step_s if piece.free_step_s is not None else piece.step_s
    return Work(
        before_s=piece.before_s + piece.overhead_s + handing,
        steps=rounds,
        step_s=piece.step_s * ratio,
        free_step_s=free * ratio,
        after_s=piece.after_s + max(0.0, scoring),
    )


def row_bytes(sample: Sample) -> float:
    """What a further row adds to the memory of a lane, and once more of the process that prepares the table.

    A lane holds it in Java, in XGBoost and in torch.
    """
    numbers = max(0, sample.size.num_features - sample.num_words - sample.num_flags)
    return (
        REFERENCE.word_bytes * sample.num_words
        + REFERENCE.flag_bytes * sample.num_flags
        + REFERENCE.number_bytes * numbers
    )


def _train_ratio(found: Calibration) -> float:
    return found.size.train_rows / max(1, found.observed.schema.splits["train"])


def _train_share(found: Calibration) -> float:
    return found.size.train_rows / max(1, found.sample.whole_rows)


def _device_bytes(found: Calibration) -> int | None:
    """Of a GPU: what the small run took, and the rows that stay there."""
    measured = found.observed.peak_device_bytes
    if measured is None:
        return None
    return measured + 4 * found.size.num_features * max(0, found.sample.whole_rows - found.sample.rows)
