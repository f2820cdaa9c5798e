"""Trains one network in one configuration, as a run does it, and measures its epochs.

Plan, workers, launchers and strategies are those of a run; only the trees, the preparation and the report
are left out. An epoch includes the pass over the few validation rows. The first one warms up and does not
count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from sparkgpu.config import toml
from sparkgpu.config.keys import RunConfig
from sparkgpu.errors import TrialError
from sparkgpu.host.devices import Device, Machine
from sparkgpu.host.other_work import OtherWork
from sparkgpu.host.ports import reserved_ports
from sparkgpu.lanes.crew import lane_crew
from sparkgpu.lanes.launch import outside_environment
from sparkgpu.plan.defaults import resolve, row_flop
from sparkgpu.plan.plan import make_plan
from sparkgpu.plan.tree_defaults import TableSize
from sparkgpu.rundir.curve import read_curve
from sparkgpu.rundir.files import read_record, write_json, write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.schema import TableSchema
from sparkgpu.table.source import Source

_FLOP = 2e11
"""Of all epochs of a case, forward and backward; a core computes them in some seconds."""
_CORE_FLOP_PER_S = 2.5e10  # small networks, as measured; benchmarks/results/2026-11-networks.md
_START_S = 7.0  # of the processes of a case
_GPU_TIMES = 40
_EPOCHS = (4, 200)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration: `keys` are set on top of the user's, over `devices` devices."""

    name: str
    strategy: str
    devices: int
    keys: Mapping[str, Any]


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


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The prepared table of all cases, in the folder of `paths`."""

    paths: RunPaths
    schema: TableSchema
    source: Source


def settings(config: RunConfig, schema: TableSchema, device: str, epochs: int | None) -> RunConfig:
    """The user's configuration with every key of the network filled in, for one network.

    It is filled once, so that all cases train the same network in the same batches, for as many `epochs`
    (None: for some seconds).
    """
    preset = config.preset or ("fast" if device == "cpu" else "balanced")
    found = resolve(
        config, preset=preset, strategy="single", size=TableSize.of(schema), device=device,
        tree_device=lambda engine: "cpu",
    ).config  # fmt: skip
    if epochs is None:
        flop = row_flop(found.neural, len(schema.features)) * max(1, schema.splits["train"])
        least, most = _EPOCHS
        epochs = max(least, min(most, round(_FLOP * (1 if device == "cpu" else _GPU_TIMES) / flop)))
    neural = found.neural.model_copy(update={"epochs": epochs, "patience": 0, "micro_batch_size": None})
    return found.model_copy(update={"neural": neural, "models": ("neural",), "repeats": 1})


def planned_s(config: RunConfig, prepared: Prepared, machine: Machine, *, on_cpu: bool) -> float:
    """About the seconds of one network on one device, before anything was measured."""
    schema = prepared.schema
    rows = max(1, schema.splits["train"]) * (config.neural.epochs or 1)
    rate = _CORE_FLOP_PER_S * (machine.cores if on_cpu else _GPU_TIMES)
    return _START_S + row_flop(config.neural, len(schema.features)) * rows / rate


def train(case: Case, config: RunConfig, prepared: Prepared, devices: Sequence[Device], machine: Machine,
          folder: Path) -> Measured:  # fmt: skip
    """Train `case` on `devices` in a new `folder`.

    Raises `ConfigError` if its strategy cannot spread the network, and `TrialError` if the training fails.
    """
    others, began = OtherWork(), time.monotonic()
    paths = RunPaths(root=folder)
    folder.mkdir(parents=True)
    paths.table.symlink_to(prepared.paths.table)
    own = _with(config, case)
    environ = outside_environment(os.environ)
    scratch = folder / "scratch"
    scratch.mkdir()
    with reserved_ports(len(devices)) as ports:
        plan = make_plan(own, machine, tuple(devices), ports)
        write_json(paths.plan, plan)
        write_text(paths.config, toml.dump(own))
        crew_of = lane_crew(paths, plan, own, scratch=scratch, source=prepared.source, environ=environ)
        with crew_of as crew:
            outcome = crew.follow(lambda lane, branch, event: None, lambda: None, iter(()))
    if outcome.failed:
        raise TrialError(f"{case.name}: {next(iter(outcome.failed.values()))}")
    epochs_s, records = [], []
    for spec in plan.trials:
        epochs_s.append(_epoch_s(paths.trial(spec.name).learning_curve))
        records.append(read_record(paths.trial(spec.name).fit, FitRecord))
    rows = records[0].train_rows
    return Measured(
        case=case,
        rows_per_s=sum(rows / each for each in epochs_s),
        epoch_s=max(epochs_s),
        networks=len(plan.trials),
        threads=plan.lanes[0].neural_threads,
        epochs=own.neural.epochs or 1,
        batch=own.neural.batch_size or 1,
        parameters=int(records[0].native_parameters["num_parameters"]),
        train_rows=rows,
        wall_s=time.monotonic() - began,
        other_cores=others.cores(),
    )


def _with(config: RunConfig, case: Case) -> RunConfig:
    neural = config.neural.model_copy(update={"strategy": case.strategy, **case.keys})
    neural = neural.model_copy(update={"micro_batch_size": neural.batch_size})
    repeats = case.devices if case.strategy == "single" else 1
    return config.model_copy(update={"neural": neural, "repeats": repeats})


def _epoch_s(curve: Path) -> float:
    """The median epoch without the first one."""
    _, points = read_curve(curve)
    at_s = [point.elapsed_s for point in points if point.elapsed_s is not None]
    return median([after - before for before, after in pairwise(at_s)] or at_s)
