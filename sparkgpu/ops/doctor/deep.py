"""Trains on every device that was asked for, and says what each proved.

Everything runs as a user would run it, through ``python -m sparkgpu``. A step that fails is a line of the
result; the others go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np

from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.devices import Device
from sparkgpu.core.plan.devices import ONE_SLICE
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.files import read_record
from sparkgpu.core.rundir.metrics_json import DoneTrial, read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.words import counted, gibibytes, listed, seconds_text
from sparkgpu.ops.doctor.check import Check, failure, not_tried, ok, warning

_ROWS = 6_000
_RUN_S, _PROGRAM_S = 400.0, 120.0
_FIRST_RUN_S = 1_800.0  # in which the driver may translate H2O's library for a new card
_SMALL = (
    "trees.ntrees=50", "trees.early_stopping_rounds=0", "neural.architecture=mlp", "neural.hidden=[64,64]",
    "neural.epochs=5", "neural.patience=0", "neural.batch_size=256", "neural.dropout=0.0",
)  # fmt: skip
_DEFAULT = ("neural.epochs=30", "neural.patience=0")
_ONE_NETWORK = ('models=["neural"]', "repeats=1")
_STRATEGIES = ("ddp", "fsdp", "tp", "pp")
_EQUAL = 0.02  # of the metric: strategies round differently
_DEFECT = "send doctor.md with a bug report"
_LOG = f"read the log of its lane, or {_DEFECT}"


class Run:
    """A run in a folder, and why it did not finish if it did not."""

    def __init__(self, folder: Path, why: str) -> None:
        self.paths = RunPaths(root=folder)
        self._why = why or "it is not in metrics.json"
        self.trials = read_results(self.paths).trials if self.paths.metrics.exists() else ()

    def trial(self, model: str, lane: int = 0) -> DoneTrial:
        """The trial of `model` on a lane. Raises `TrialError` with the reason if it is not done."""
        found = next((one for one in self.trials if (one.model, one.lane) == (model, lane)), None)
        if isinstance(found, DoneTrial):
            return found
        raise TrialError(found.error if found else self._why)


class Examination:
    """The deep checks on some devices; `folder` holds what they write, `tell` hears what begins."""

    def __init__(self, devices: Sequence[Device], folder: Path, tell: Callable[[str], None]) -> None:
        self._devices = devices
        self._folder = folder
        self._tell = tell
        self._on_gpu = devices[0].kind == "cuda"
        self._table = folder / "made.parquet"

    def checks(self) -> Iterator[Check]:
        """Each check, when it is done."""
        _write_table(self._table)
        yield from self._lanes()
        yield from self._precisions()
        yield from self._gangs()

    def _lanes(self) -> Iterator[Check]:
        """Trees and a network on every device at the same time, with proof."""
        count = len(self._devices)
        self._tell(f"trees and networks on {counted(count, 'device')} at once")
        run = self._run("lanes", self._devices, *_SMALL, f"repeats={count}", most_s=_FIRST_RUN_S)
        for (lane, device), model in product(enumerate(self._devices), ("trees", "neural")):
            yield _checked(f"{model} on lane {lane}", _LOG, partial(self._proof, run, model, lane, device))
        if self._on_gpu:
            yield _planned_memory(run)

    def _proof(self, run: Run, model: str, lane: int, device: Device) -> str:
        trial = run.trial(model, lane)
        proof = trial.device_proof
        asked = proof.get("tree_method_asked")
        shown = f"H2O asked its library for {asked}" if asked else proof.get("device")
        shown = listed(cast(list[str], proof.get("parameters_device", (shown,))))
        found = f"{device.title}: {shown}, {seconds_text(trial.fit_s)}, {_speed(trial)}"
        if nvml := proof.get("nvml"):
            found += f"; NVML: {nvml}"
        if trial.devices != (device.name if self._on_gpu else "cpu",):
            raise TrialError(f"{found}; it trained on {listed(trial.devices)}")
        return found

    def _precisions(self) -> Iterator[Check]:
        formats = ("float32", "tf32", "bfloat16", "float16") if self._on_gpu else ("float32", "bfloat16")
        for device in self._devices if self._on_gpu else self._devices[:1]:
            for precision in formats:
                self._tell(f"the default network in {precision}")
                name = f"{precision} on {device.name}"
                settings = (*_DEFAULT, *_ONE_NETWORK, f"neural.precision={precision}")
                run = self._run(name.replace(" ", "-"), [device], *settings)
                found = _checked(name, _DEFECT, partial(_learned, run))
                yield not_tried(name, found.found) if "does not support" in found.found else found

    def _gangs(self) -> Iterator[Check]:
        """One network over all devices, in every way, against one device; and the speed between devices."""
        count = len(self._devices)
        if count < 2:
            yield not_tried("one network over several devices", "one device was examined")
            return
        if any(device.is_slice for device in self._devices):
            yield not_tried("one network over several devices", ONE_SLICE)
            return
        self._tell("the sum of a tensor over all devices")
        yield _checked("all-reduce", "check NCCL with NCCL_DEBUG=INFO", self._all_reduce)
        self._tell("one network on one device")
        only = (*_SMALL, *_ONE_NETWORK, "neural.precision=float32")
        single = self._run("single", self._devices[:1], *only)
        for strategy in _STRATEGIES:
            self._tell(f"one network over {count} devices by {strategy}")
            run = self._run(strategy, self._devices, *only, f"neural.strategy={strategy}")
            yield _checked(strategy, _LOG, partial(_against, run, single))

    def _all_reduce(self) -> str:
        found = all_reduce(self._devices)
        speed = f"{found['bytes_per_s'] / 1e9:.2f} GB/s, on the bus {found['bus_bytes_per_s'] / 1e9:.2f}"
        what = f"{found['backend']} over {found['ranks']} ranks: {speed}"
        if not found["right"]:
            raise TrialError(f"{what}; the sums are wrong")
        return what

    def _run(self, name: str, devices: Sequence[Device], *settings: str, most_s: float = _RUN_S) -> Run:
        where = ["--cpu-lanes", str(len(devices))]
        if self._on_gpu:
            where = ["--gpus", ",".join(device.visible for device in devices)]
        command = [
            "-m", "sparkgpu", "run", str(self._table), "--target", "y", *where, "--quiet", "--out",
            str(self._folder / name), *(word for setting in settings for word in ("--set", setting)),
        ]  # fmt: skip
        _, why = _output(command, most_s, os.environ)
        return Run(self._folder / name, why)


def _checked(name: str, fix: str, find: Callable[[], str]) -> Check:
    """What `find` found, or why it failed, with the fix."""
    try:
        return ok(name, find())
    except TrialError as error:
        return failure(name, str(error), fix)


def _speed(trial: DoneTrial) -> str:
    return f"{trial.train_rows_per_s:,.0f} rows/s"


def _planned_memory(run: Run) -> Check:
    fits = (read_record(run.paths.trial(trial.name).fit, FitRecord) for trial in run.trials)
    found = [
        f"{gibibytes(fit.memory_plan.peak_bytes)} planned, {gibibytes(fit.peak_device_bytes)} measured"
        for fit in fits
        if fit.memory_plan and fit.peak_device_bytes
    ]
    if not found:
        return warning("planned memory", "no network told its peak", _DEFECT)
    return ok("planned memory", "; ".join(found))


def _learned(run: Run) -> str:
    trial = run.trial("neural")
    _, curve = read_curve(run.paths.trial(trial.name).learning_curve)
    losses = [point.valid for point in curve if point.valid is not None]
    if not losses or min(losses) >= losses[0]:
        raise TrialError(f"{_speed(trial)}, but the loss did not fall")
    return _speed(trial)


def _against(run: Run, single: Run) -> str:
    """The loss of a network over several devices beside that of the same network on one."""
    own, other = run.trial("neural"), single.trial("neural")
    found, expected = own.metrics.valid["log_loss"] or 0.0, other.metrics.valid["log_loss"] or 0.0
    losses = f"log loss {found:.4f}, one device {expected:.4f}"
    if abs(found - expected) > _EQUAL * abs(expected):
        raise TrialError(losses)
    return f"{losses}; {seconds_text(own.fit_s)}, one device {seconds_text(other.fit_s)}"


def all_reduce(devices: Sequence[Device]) -> dict[str, Any]:
    """What `sparkgpu.ops.doctor.all_reduce` measures with a rank on each device. Raises `TrialError`."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(len(devices))]
    environ = {
        "OMP_NUM_THREADS": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(device.visible for device in devices),
    }
    on_cpu = () if devices[0].kind == "cuda" else ("--cpu",)
    program = [*launcher, "-m", "sparkgpu.ops.doctor.all_reduce", *on_cpu]
    text, why = _output(program, _PROGRAM_S, {**os.environ, **environ})
    if why:
        raise TrialError(why)
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found


def _output(arguments: Sequence[str], most_s: float, environ: Mapping[str, str]) -> tuple[str, str]:
    """What a Python program prints, and the last line of why it failed, if it did."""
    try:
        ended = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=most_s,
            stdin=subprocess.DEVNULL, env=environ,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "", f"it did not end within {most_s:.0f} s"
    lines = (ended.stderr or ended.stdout).strip().splitlines() or [f"status {ended.returncode}"]
    return ended.stdout, lines[-1] if ended.returncode else ""


def _write_table(file: Path) -> None:
    """A table of numbers and words whose classes follow from them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(7)
    numbers_NF = random.normal(size=(_ROWS, 12))
    words_N = random.choice(["north", "south", "west"], _ROWS)
    signal_N = numbers_NF[:, 0] + numbers_NF[:, 1] * numbers_NF[:, 2] + (words_N == "south")
    columns = {f"x{place}": numbers_NF[:, place] for place in range(numbers_NF.shape[1])}
    label_N = np.where(signal_N + random.normal(size=_ROWS) > 0.3, "yes", "no")
    pq.write_table(pa.table({**columns, "where": words_N, "y": label_N}), file)
