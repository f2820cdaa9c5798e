"""Runs one trial of the torch engine: in this process, or as a gang of ranks on several lanes or machines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from sparkgpu.config.keys import NeuralConfig
from sparkgpu.engines.neural.strategies.base import Strategy
from sparkgpu.engines.neural.strategies.data_parallel import DataParallel
from sparkgpu.engines.neural.training.precision import choose_precision
from sparkgpu.engines.neural.training.train import Report
from sparkgpu.engines.neural.training.trial import run_rank
from sparkgpu.errors import DeviceError
from sparkgpu.plan.plan import LanePlan, TrialSpec
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.schema import TableSchema

_REPORT_EVERY_S = 0.4


def run_trial(
    spec: TrialSpec,
    config: NeuralConfig,
    schema: TableSchema,
    paths: RunPaths,
    lane: LanePlan,
    events: EventWriter,
    *,
    scratch: Path,
    trees_ended: Callable[[], bool] = lambda: False,
) -> FitRecord:
    """Train, predict valid and test, and write predictions, learning curve and model to the trial's folder.

    `config` is resolved: every parameter has a value. When `trees_ended` is true, training in this process
    takes all cores of the lane. That changes no bit of the result as long as ``MKL_CBWR=AUTO,STRICT`` is in
    the environment; without it MKL sums some products in another order. Sets torch's threads and seed for the
    process.

    Raises `DeviceError` if the lane's GPU cannot be used, `TrialError` if training diverges or a rank is
    lost.
    """
    if spec.nodes > 1:
        from sparkgpu.engines.launchers import machines as nodes

        return nodes.run_trial(spec, config, paths)
    if spec.strategy not in ("single", "dp"):
        from sparkgpu.engines.launchers import local as gang  # importing the elastic launcher is slow

        return gang.run_trial(spec, config, paths, lane, events, scratch=scratch)
    device = usable_device(lane)
    torch.set_num_threads(lane.neural_threads)
    precision = choose_precision(config, device, lane.device_name)
    strategy: Strategy
    if spec.strategy == "dp":
        strategy = DataParallel(device, precision, num_devices=len(spec.gang))
    else:
        strategy = Strategy(device, precision)
    reporter = _Reporter(events, spec.name, lane, trees_ended)
    record = run_rank(spec, config, schema, paths, lane, events, strategy, reporter.about)
    assert record is not None  # the only rank is the leading one
    return record


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
    """Called after every step; at most every 0.4 s it reports progress and checks for free cores."""

    def __init__(
        self, events: EventWriter, trial: str, lane: LanePlan, trees_ended: Callable[[], bool]
    ) -> None:
        self._events = events
        self._trial = trial
        self._lane = lane
        self._trees_ended = trees_ended
        self._metric = ""
        self._next = 0.0

    def about(self, metric: str) -> Report:
        """This reporter, with values of `metric`."""
        self._metric = metric
        return self

    def __call__(self, done: float, epoch: int, value: float | None) -> None:
        now = time.perf_counter()
        if now < self._next and done < 1.0:
            return
        self._next = now + _REPORT_EVERY_S
        metric = self._metric if value is not None else None
        self._events.progress(self._trial, done, step=epoch, metric=metric, value=value)
        if torch.get_num_threads() < self._lane.threads and self._trees_ended():
            torch.set_num_threads(self._lane.threads)
