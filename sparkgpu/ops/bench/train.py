"""Trains one network in one configuration, as a run does it, and measures its epochs.

Plan, workers, launchers and strategies are those of a run; only the trees, the scores and the report are left
out. The first case prepares the table, which the others share. An epoch includes the pass over the few
validation rows. The first one warms up and does not count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from sparkgpu.core.config import toml
from sparkgpu.core.config.keys import PrepareConfig, RunConfig, SplitConfig
from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.devices import Device, Machine
from sparkgpu.core.host.meters import OtherWork
from sparkgpu.core.host.reservations import reserved_ports, scratch_folder
from sparkgpu.core.plan.defaults import resolve, row_flop
from sparkgpu.core.plan.plan import make_plan
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.files import read_record, write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.source import Source, find_source
from sparkgpu.lanes.crew import lane_crew
from sparkgpu.lanes.launch import outside_environment
from sparkgpu.ops.advise.sample import Sample

_FLOP = 2e11
"""Of all epochs of a case, forward and backward; a core computes them in some seconds."""
_CORE_FLOP_PER_S = 2.5e10  # small networks, as measured; benchmarks/results/2026-11-networks.md
_START_S = 7.0  # of the processes of a case
_GPU_TIMES = 40
_EPOCHS = (4, 200)
_SPLIT = SplitConfig(test=0.05, valid=0.05)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration: `keys` are set on top of the user's, over `devices` devices."""

    name: str
    strategy: str = "single"
    devices: int = 1
    keys: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a case brought; `rows_per_s` are those of all its networks together.

    `networks` is how many networks trained at once, `threads` those of one process, and `epoch_s` the median
    epoch of the slowest network. The case took `wall_s` with its start, and meanwhile other work took
    `other_cores` of the machine's cores.
    """

    case: Case
    rows_per_s: float
    epoch_s: float
    networks: int
    threads: int
    epochs: int
    batch: int
    parameters: int
    train_rows: int
    wall_s: float
    other_cores: float

    @property
    def step(self) -> tuple[int, float]:
        """A batch's rows, and the seconds of a step."""
        return self.batch, self.epoch_s / max(1, -(-self.train_rows // self.batch))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all cases share: rows of the table, one network with every key filled in, the machine.

    The first case prepares the table in a folder of `folder`.
    """

    source: Source
    sample: Sample
    config: RunConfig
    machine: Machine
    devices: Sequence[Device]
    folder: Path

    @property
    def on_cpu(self) -> bool:
        return self.devices[0].kind == "cpu"

    def planned_s(self) -> float:
        """About the seconds of one network on one device, before anything was measured."""
        rate = _CORE_FLOP_PER_S * (self.machine.cores if self.on_cpu else _GPU_TIMES)
        return _START_S + (self.config.neural.epochs or 1) * _epoch_flop(self.config, self.sample) / rate


def one_network(config: RunConfig, sample: Sample, device: str, epochs: int | None) -> RunConfig:
    """The user's configuration with every key of the network filled in, for one network on rows of `sample`.

    It is filled once, so that all cases train the same network in the same batches, for as many `epochs`
    (None: for some seconds).
    """
    preset = config.preset or ("fast" if device == "cpu" else "balanced")
    found = resolve(
        config, preset=preset, strategy="single", size=sample.size, device=device,
        tree_device=lambda engine: "cpu",
    ).config  # fmt: skip
    if epochs is None:
        least, most = _EPOCHS
        flop = _FLOP * (1 if device == "cpu" else _GPU_TIMES)
        epochs = max(least, min(most, round(flop / _epoch_flop(found, sample))))
    neural = found.neural.model_copy(update={"epochs": epochs, "patience": 0, "micro_batch_size": None})
    return found.model_copy(
        update={
            "neural": neural, "models": ("neural",), "split": _SPLIT, "prepare": PrepareConfig(by="arrow"),
            "time_limit": None,
        }
    )  # fmt: skip


def _epoch_flop(config: RunConfig, sample: Sample) -> float:
    rows = sample.rows * (1 - _SPLIT.valid - _SPLIT.test)
    return row_flop(config.neural, sample.size.num_features) * max(1.0, rows)


def train(case: Case, setting: Setting) -> Measured:
    """Train `case` in a new folder.

    Raises `ConfigError` if its strategy cannot spread the network, `DataError` if the table cannot be
    learned, and `TrialError` if the training fails.
    """
    table = setting.folder / "table"
    others, began = OtherWork(), time.monotonic()
    paths = RunPaths(root=setting.folder / f"{case.name.replace(' ', '-').replace(',', '')}-{case.devices}")
    paths.root.mkdir()
    if table.exists():
        paths.table.symlink_to(table)
    neural = setting.config.neural.model_copy(update={"strategy": case.strategy, **case.keys})
    neural = neural.model_copy(update={"micro_batch_size": neural.batch_size})
    repeats = case.devices if case.strategy == "single" else 1
    own = setting.config.model_copy(update={"neural": neural, "repeats": repeats})
    source = find_source(str(setting.sample.file)).model_copy(update={"name": setting.source.name})
    environ = outside_environment(os.environ)
    # As runs have it: in the case's folder its path is too long for the sockets of a DataLoader's workers.
    with scratch_folder() as scratch, reserved_ports(case.devices) as ports:
        plan = make_plan(own, setting.machine, tuple(setting.devices[: case.devices]), ports)
        write_json(paths.plan, plan)
        write_text(paths.config, toml.dump(own))
        with lane_crew(paths, plan, own, scratch=scratch, source=source, environ=environ) as crew:
            outcome = crew.follow(lambda lane, branch, event: None, lambda: None, iter(()))
    if outcome.failed:
        raise TrialError(f"{case.name}: {next(iter(outcome.failed.values()))}")
    if not table.exists():
        paths.table.rename(table)
    fits = [read_record(paths.trial(spec.name).fit, FitRecord) for spec in plan.trials]
    epochs_s = [_epoch_s(paths.trial(spec.name).learning_curve) for spec in plan.trials]
    rows = fits[0].train_rows
    return Measured(
        case=case,
        rows_per_s=sum(rows / each for each in epochs_s),
        epoch_s=max(epochs_s),
        networks=len(plan.trials),
        threads=plan.lanes[0].neural_threads,
        epochs=own.neural.epochs or 1,
        batch=own.neural.batch_size or 1,
        parameters=int(fits[0].native_parameters["num_parameters"]),
        train_rows=rows,
        wall_s=time.monotonic() - began,
        other_cores=others.cores(),
    )


def _epoch_s(curve: Path) -> float:
    """The median epoch without the first one."""
    _, points = read_curve(curve)
    at_s = [point.elapsed_s for point in points if point.elapsed_s is not None]
    return median([after - before for before, after in pairwise(at_s)] or at_s)
