"""Trains one network in one configuration, by a run on rows of the table, and measures its epochs.

The trees are left out. An epoch includes the pass over the few validation rows. The first one warms up and
does not count.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from sparkgpu.core.config.keys import DevicesConfig, PrepareConfig, RunConfig, SplitConfig
from sparkgpu.core.host.devices import Device, Machine
from sparkgpu.core.plan.defaults import resolve, row_flop
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.files import read_record
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.ops.advise.sample import Sample, run_sample

_FLOP = 2e11
"""Of all epochs of a case, forward and backward; a core computes them in some seconds."""
_GPU_TIMES = 40
_EPOCHS = (4, 20)  # their median needs no more, and of few rows steps cost more than their arithmetic
_SPLIT = SplitConfig(test=0.05, valid=0.05)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration: `keys` are set on top of the user's, over `devices` devices."""

    name: str
    strategy: str = "single"
    devices: int = 1
    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def networks(self) -> int:
        """How many networks train at once: a strategy spreads one, and else each device has its own."""
        return self.devices if self.strategy == "single" else 1


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a case brought: the median epoch of each of its networks.

    `threads` are those of one process. The case took `wall_s` with its start.
    """

    case: Case
    epochs_s: Sequence[float]
    threads: int
    batch: int
    parameters: int
    train_rows: int
    wall_s: float

    @property
    def epoch_s(self) -> float:
        """That of the slowest network."""
        return max(self.epochs_s)

    @property
    def rows_per_s(self) -> float:
        """Those of all networks together."""
        return sum(self.train_rows / each for each in self.epochs_s)

    @property
    def step(self) -> tuple[int, float]:
        """A batch's rows, and the seconds of a step."""
        return self.batch, self.epoch_s / max(1, -(-self.train_rows // self.batch))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all cases share: rows of the table, one network with every key filled in, and the machine.

    `name` is the table's, and each case has a folder in `folder`.
    """

    name: str
    sample: Sample
    config: RunConfig
    machine: Machine
    devices: Sequence[Device]
    folder: Path

    @property
    def on_cpu(self) -> bool:
        return self.devices[0].kind == "cpu"


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
        rows = sample.rows * (1 - _SPLIT.valid - _SPLIT.test)
        epoch_flop = row_flop(found.neural, sample.size.num_features) * max(1.0, rows)
        least, most = _EPOCHS
        epochs = max(least, min(most, round(_FLOP * (1 if device == "cpu" else _GPU_TIMES) / epoch_flop)))
    neural = found.neural.model_copy(update={"epochs": epochs, "patience": 0})
    return found.model_copy(
        update={
            "neural": neural, "models": ("neural",), "split": _SPLIT, "prepare": PrepareConfig(by="arrow"),
            "time_limit": None, "search": None,
        }
    )  # fmt: skip


def train(case: Case, setting: Setting) -> Measured:
    """Train `case` in a new folder.

    Raises `ConfigError` if its strategy cannot spread the network, `DataError` if the table cannot be
    learned, and `TrialError` if the training fails.
    """
    began = time.monotonic()
    neural = setting.config.neural.model_copy(update={"strategy": case.strategy, **case.keys})
    neural = neural.model_copy(update={"micro_batch_size": neural.batch_size})
    devices = DevicesConfig(cpu_lanes=case.devices)
    if not setting.on_cpu:
        devices = DevicesConfig(gpus=tuple(device.visible for device in setting.devices[: case.devices]))
    own = setting.config.model_copy(update={"neural": neural, "repeats": case.networks, "devices": devices})
    folder = setting.folder / f"{case.name.replace(' ', '-').replace(',', '')}-{case.devices}"
    paths, _ = run_sample(setting.sample, own, folder, setting.name)
    plan = read_record(paths.plan, Plan)
    fit = read_record(paths.trial(plan.trials[0].name).fit, FitRecord)
    return Measured(
        case=case,
        epochs_s=[_epoch_s(paths.trial(spec.name).learning_curve) for spec in plan.trials],
        threads=plan.lanes[0].neural_threads,
        batch=neural.batch_size or 1,
        parameters=int(fit.native_parameters["num_parameters"]),
        train_rows=fit.train_rows,
        wall_s=time.monotonic() - began,
    )


def _epoch_s(curve: Path) -> float:
    """The median epoch without the first one."""
    _, points = read_curve(curve)
    at_s = [point.elapsed_s for point in points if point.elapsed_s is not None]
    return median([after - before for before, after in pairwise(at_s)] or at_s)
