"""The torch engine: a network in this process, or as a gang of ranks that a launcher starts."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.errors import DeviceError
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.launchers.base import Launcher
from sparkgpu.neural.model import TabularModel, load_model
from sparkgpu.neural.strategies.base import RankPlace
from sparkgpu.neural.training.precision import choose_precision
from sparkgpu.neural.training.train import Report
from sparkgpu.neural.training.trial import run_rank
from sparkgpu.trials.engine import NeuralTrial, Platform

_REPORT_EVERY_S = 0.4


class Torch:
    """An engine (`sparkgpu.trials.engine.Engine`).

    Once the trial's cores are free, training in this process takes all of the lane, where that changes no bit
    (`Precision.keeps_threads`). In float32 that needs ``MKL_CBWR=AUTO,STRICT`` in the environment, without
    which MKL sums some products in another order. Sets torch's threads and seed for the whole process.
    """

    def __init__(self, platform: Platform) -> None:
        """It needs nothing of `platform`."""

    def run(self, trial: NeuralTrial) -> FitRecord:
        return _launcher(trial).run(trial)

    @staticmethod
    def load(folder: Path, schema: TableSchema) -> TabularModel:
        """`schema` stands in the model's own file, too."""
        return load_model(folder)


class InProcess:
    """A launcher (`sparkgpu.neural.launchers.base.Launcher`) of one rank: this process."""

    def run(self, trial: NeuralTrial) -> FitRecord:
        spec, lane = trial.spec, trial.lane
        device = usable_device(lane)
        torch.set_num_threads(lane.neural_threads)
        place = RankPlace(
            device=device,
            precision=choose_precision(trial.parameters, device, lane.device_name, spec.strategy),
            num_devices=len(spec.gang),
        )
        strategy = STRATEGIES.find(spec.strategy).loaded().at(place)
        reporter = _Reporter(trial, takes_cores=not place.precision.keeps_threads)
        record = run_rank(trial, strategy, reporter.about)
        assert record is not None  # the only rank is the leading one
        return record


def _launcher(trial: NeuralTrial) -> Launcher:
    if trial.spec.nodes > 1:
        from sparkgpu.neural.launchers.machines import Machines

        return Machines()
    if STRATEGIES.find(trial.spec.strategy).devices == "ranks":
        from sparkgpu.neural.launchers.local import Local  # importing the elastic launcher is slow

        return Local()
    return InProcess()


def usable_device(lane: LanePlan, index: int = 0) -> torch.device:
    """The lane's device, or device number `index` of those visible to this process.

    Raises `DeviceError` if it is a GPU that torch cannot use; it never falls back to the CPU.
    """
    if not lane.device.startswith("cuda"):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        raise DeviceError(
            f"lane {lane.index} trains its network on {lane.device} ({lane.device_name}), but torch "
            f"{torch.__version__} finds no usable GPU (CUDA_VISIBLE_DEVICES={visible}). Install a CUDA "
            "build of torch that fits the driver, or ask for CPU lanes with --cpu-lanes 1."
        )
    return torch.device("cuda", index)


class _Reporter:
    """Called after every step; at most every 0.4 s it reports progress and takes cores that became free."""

    def __init__(self, trial: NeuralTrial, *, takes_cores: bool) -> None:
        self._trial = trial
        self._takes_cores = takes_cores
        self._metric = ""
        self._next = 0.0
        self._watched = 0

    def about(self, metric: str) -> Report:
        """This reporter, with values of `metric`."""
        self._metric = metric
        return self

    def __call__(self, done: float, epoch: int, value: float | None) -> None:
        if self._trial.watch is not None and value is not None and epoch > self._watched:
            self._watched = epoch
            self._trial.watch(epoch, value)
        now = time.perf_counter()
        if now < self._next and done < 1.0:
            return
        self._next = now + _REPORT_EVERY_S
        trial = self._trial
        metric = self._metric if value is not None else None
        trial.events.progress(trial.name, done, step=epoch, metric=metric, value=value)
        if self._takes_cores and torch.get_num_threads() < trial.lane.threads and trial.cores_are_free():
            torch.set_num_threads(trial.lane.threads)
