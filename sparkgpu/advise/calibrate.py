"""Measures this machine with the user's own table: a sample of it, and a small run on that sample.

How many rows, rounds and epochs the small run gets follows from the arithmetic of the network and from the
model of a round in `sparkgpu.plan.tree_defaults`, so that both branches train for some seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sparkgpu.advise.sample import Sample, take_sample
from sparkgpu.advise.small_run import Observed, observe
from sparkgpu.config.keys import RunConfig
from sparkgpu.plan.defaults import Resolved, row_flop
from sparkgpu.plan.plan import Plan
from sparkgpu.plan.tree_defaults import TableSize, each_round_s
from sparkgpu.table.source import Source

_MOST_ROWS = 20_000
_LEAST_ROWS = 2_000
_EPOCH_FLOP = 6e10
"""Of one epoch of the small run: some seconds of one core, so that large networks get fewer rows."""
_GPU_TIMES = 40.0
_NETWORK_FLOP = 4e11
_TREES_S = 4.0
_ROUNDS, _EPOCHS = (30, 100), (3, 60)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What the small run of `sample` showed, and the run that is asked for.

    `size` is that of the whole table, `resolved` are its parameters, and `rounds` and `epochs` are those of
    the small run.
    """

    sample: Sample
    observed: Observed
    size: TableSize
    resolved: Resolved
    rounds: int
    epochs: int


def calibrate(config: RunConfig, source: Source, plan: Plan, folder: Path) -> Calibration:
    """Take a sample of `source` and carry out a small run of it in `folder`.

    Raises `DataError` if the table cannot be read or learned, and what else a run raises.
    """
    on_gpu = plan.lanes[0].device != "cpu"
    sample = take_sample(source, config, _MOST_ROWS, folder)
    resolved = plan.resolved(config, sample.size)
    flop = row_flop(resolved.neural, sample.size.num_features) * (1 / _GPU_TIMES if on_gpu else 1)
    rows = min(sample.rows, max(_LEAST_ROWS, int(_EPOCH_FLOP / flop)))
    if rows < sample.rows:
        sample = take_sample(source, config, rows, folder)
    small = replace(sample.size, train_rows=int(sample.rows * sample.size.train_rows / sample.whole_rows))
    rounds = _within(_TREES_S / each_round_s(resolved.trees, small), _ROUNDS)
    epochs = _within(_NETWORK_FLOP / (flop * max(1, small.train_rows)), _EPOCHS)
    data = resolved.config.data.model_copy(update={"source": str(sample.file)})
    asked = resolved.config.model_copy(
        update={"data": data, "devices": config.devices, "neural": resolved.config.neural}
    )
    repeats = len(plan.lanes) if plan.strategy == "single" else 1
    observed = observe(
        asked, rounds=rounds, epochs=epochs, repeats=repeats, folder=folder / "run", title=source.name
    )
    schema = observed.schema
    size = replace(
        TableSize.of(schema),
        train_rows=sample.size.train_rows,
        num_classes=max(len(schema.classes), sample.size.num_classes if schema.classes else 0),
    )
    return Calibration(
        sample=sample,
        observed=observed,
        size=size,
        resolved=plan.resolved(config, size),
        rounds=rounds,
        epochs=epochs,
    )


def _within(value: float, bounds: tuple[int, int]) -> int:
    return max(bounds[0], min(bounds[1], round(value)))
