"""Trains on every device that was asked for, and says what each proved.

Everything runs as a user would run it, through ``python -m sparkgpu``. A step that fails is a line of the
result; the others go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.cuda_packages import has_xgboost_with_cuda
from sparkgpu.core.host.devices import Device
from sparkgpu.core.host.gpus import Survey
from sparkgpu.core.plan.devices import ONE_SLICE
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.metrics_json import DoneTrial
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.words import counted, gibibytes, listed, seconds_text
from sparkgpu.ops.doctor import promises
from sparkgpu.ops.doctor.check import Check, failure, not_tried, ok
from sparkgpu.ops.doctor.promises import DEFECT, Run

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
_LOG = f"read the log of its lane, or {DEFECT}"


class Examination:
    """The deep checks on some devices; `folder` holds what they write, `tell` hears what begins.

    On GPUs, which `survey` tells of, each promise of docs/gpu.md has a check.
    """

    def __init__(
        self, devices: Sequence[Device], survey: Survey, folder: Path, tell: Callable[[str], None]
    ) -> None:
        self._devices = devices
        self._survey = survey
        self._folder = folder
        self._tell = tell
        self._on_gpu = devices[0].kind == "cuda"
        self._table = folder / "made.parquet"
        self._default: list[Run] = []

    def checks(self) -> Iterator[Check]:
        """Each check, when it is done."""
        _write_table(self._table)
        done: dict[str, Check] = {}
        for check in self._trained():
            done[check.name] = check
            yield check
        if self._on_gpu:
            yield promises.slices(self._devices, done)
            yield from promises.cards(self._devices, self._survey, done)

    def _trained(self) -> Iterator[Check]:
        lanes = yield from self._lanes()
        yield from self._precisions()
        if self._on_gpu:
            yield promises.planned_memory([lanes, *self._default])
            yield from self._one_by_one()
        yield from self._gangs()

    def _lanes(self) -> Generator[Check, None, Run]:
        """Trees and a network on every device at the same time, with proof."""
        count = len(self._devices)
        self._tell(f"trees and networks on {counted(count, 'device')} at once")
        run = self._run("lanes", self._devices, *_SMALL, f"repeats={count}", most_s=_FIRST_RUN_S)
        for lane, device in enumerate(self._devices):
            trees, neural = (
                _checked(f"{model} on lane {lane}", _LOG, partial(self._proof, run, model, lane, device))
                for model in ("trees", "neural")
            )
            yield from (promises.by_h2o(run, lane, trees), neural)
            if self._on_gpu:
                yield promises.own_card(run, lane, device)
        if self._on_gpu:
            yield from (promises.first_use(run, count), promises.turns(run, self._devices))
        return run

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
                run = self._network(device, f"neural.precision={precision}")
                found = _checked(f"{precision} on {device.name}", DEFECT, partial(_learned, run))
                is_tried = "does not support" not in found.found
                yield found if is_tried else not_tried(found.name, found.found)

    def _one_by_one(self) -> Iterator[Check]:
        """What is tried on one GPU after the other."""
        for device in self._devices:
            runs = [self._network(device, f"neural.cuda_graph={word}") for word in ("true", "false")]
            yield promises.graph(f"CUDA graph on {device.name}", *runs)
            self._tell(f"a step that does not fit {device.name}")
            program = partial(_out_of_memory, device)
            yield _checked(f"out of memory on {device.name}", DEFECT, program)
            yield self._xgboost(device)

    def _xgboost(self, device: Device) -> Check:
        name = f"engine xgboost on {device.name}"
        if not has_xgboost_with_cuda():
            return not_tried(name, "it is not installed, or without CUDA")
        self._tell(f"trees of the engine xgboost on {device.name}")
        settings = (*_SMALL[:2], 'models=["trees"]', "repeats=1", "trees.engine=xgboost")
        run = self._run(f"xgboost-{device.name}", [device], *settings)
        return _checked(name, _LOG, partial(self._proof, run, "trees", 0, device))

    def _network(self, device: Device, setting: str) -> Run:
        """The default network alone on a device."""
        self._tell(f"the default network with {setting} on {device.name}")
        run = self._run(f"{setting}-{device.name}", [device], *_DEFAULT, *_ONE_NETWORK, setting)
        self._default.append(run)
        return run

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
        for strategy in (*(["dp"] if self._on_gpu else []), *_STRATEGIES):
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
        return Run(RunPaths(root=self._folder / name), why)


def _checked(name: str, fix: str, find: Callable[[], str]) -> Check:
    """What `find` found, or why it failed, with the fix."""
    try:
        return ok(name, find())
    except TrialError as error:
        return failure(name, str(error), fix)


def _speed(trial: DoneTrial) -> str:
    return f"{trial.train_rows_per_s:,.0f} rows/s"


def _learned(run: Run) -> str:
    trial = run.trial("neural")
    _, curve = read_curve(run.paths.trial(trial.name).learning_curve)
    losses = [point.valid for point in curve if point.valid is not None]
    if not losses or min(losses) >= losses[0]:
        raise TrialError(f"{_speed(trial)}, but the loss did not fall")
    return f"{trial.device_proof.get('precision')}, {_speed(trial)}"


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
    on_cpu = () if devices[0].kind == "cuda" else ("--cpu",)
    return _answer([*launcher, "-m", "sparkgpu.ops.doctor.all_reduce", *on_cpu], devices)


def _out_of_memory(device: Device) -> str:
    """What `sparkgpu.ops.doctor.out_of_memory` found. Raises `TrialError`."""
    found = _answer(["-m", "sparkgpu.ops.doctor.out_of_memory"], [device])
    (whole, less), (before, after) = found["losses"], map(gibibytes, found["peaks"])
    told = f"{after} of {before}; loss {less:.4f} of {whole:.4f}; {listed(found['notes']) or 'no note'}"
    if not found["notes"] or abs(less - whole) > _EQUAL * abs(whole):
        raise TrialError(told)
    return told


def _answer(program: Sequence[str], devices: Sequence[Device]) -> dict[str, Any]:
    """The JSON object that a program prints last, which sees these devices alone. Raises `TrialError`."""
    environ = {
        "OMP_NUM_THREADS": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(device.visible for device in devices),
    }
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
