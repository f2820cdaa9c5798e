"""Trains on every device that was asked for, and says what each proved.

Everything runs as a user would run it: whole runs through ``python -m sparkgpu``, and small programs of this
folder in processes of their own. A step that fails is a line of the result; the others go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparkgpu.core.host.devices import Device
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.files import read_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.words import counted, gibibytes, listed, seconds_text
from sparkgpu.ops.doctor.check import Check, failure, not_tried, ok, warning

_ROWS = 6_000
_RUN_S, _PROGRAM_S = 400.0, 120.0
_TREES = ("trees.ntrees=50", "trees.early_stopping_rounds=0")
_SMALL = (
    *_TREES, "neural.architecture=mlp", "neural.hidden=[64,64]", "neural.epochs=5", "neural.patience=0",
    "neural.batch_size=256", "neural.dropout=0.0",
)  # fmt: skip
_DEFAULT = ("neural.epochs=30", "neural.patience=0")
_ONE_NETWORK = ('models=["neural"]', "repeats=1")
_STRATEGIES = ("ddp", "fsdp", "tp", "pp")
_EQUAL = 0.02  # of the metric: strategies round differently
_DEFECT, _LOG = "send doctor.md with a bug report", "read the log of its lane"


class Run:
    """A run: its trials as ``metrics.json`` has them, or why it did not finish."""

    def __init__(self, folder: Path, why: str) -> None:
        self.paths = RunPaths(root=folder)
        self.why = why
        metrics = read_json(self.paths.metrics) if self.paths.metrics.exists() else {"trials": []}
        self.trials: list[dict[str, Any]] = metrics["trials"]

    def first(self, model: str, lane: int = 0) -> dict[str, Any]:
        """The trial of `model` on a lane; its `error` says why it is not done."""
        own = [one for one in self.trials if one["model"] == model and one["lane"] == lane]
        return own[0] if own else {"status": "failed", "error": self.why or "it is not in metrics.json"}


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
        yield self._turns()
        yield from self._precisions()
        yield from self._gangs()
        yield self._out_of_memory()

    def _lanes(self) -> Iterator[Check]:
        """Trees and a network on every device at the same time, with proof."""
        count = len(self._devices)
        self._tell(f"trees and networks on {counted(count, 'device')} at once")
        run = self._run("lanes", self._devices, *_SMALL, f"repeats={count}")
        for lane, device in enumerate(self._devices):
            for model, kind in (("trees", "trees"), ("neural", "network")):
                yield self._proof(f"{kind} on lane {lane}", device, run.first(model, lane))
        if self._on_gpu:
            yield self._memory(run)

    def _proof(self, name: str, device: Device, trial: dict[str, Any]) -> Check:
        if trial["status"] != "done":
            return failure(name, trial["error"], _LOG)
        proof = trial["device_proof"]
        shown = proof.get("tree_method") or listed(proof.get("parameters_device", ()))
        speed = f"{trial['train_rows_per_s']:,.0f} rows/s"
        found = f"{device.title}: {shown}, {seconds_text(trial['fit_s'])}, {speed}"
        if trial["devices"] != [device.name if self._on_gpu else "cpu"]:
            return failure(name, f"{found}; it trained on {listed(trial['devices'])}", _DEFECT)
        return ok(name, found)

    def _memory(self, run: Run) -> Check:
        """Planned against measured memory of the networks."""
        ratios = []
        for trial in run.trials:
            fit = read_json(run.paths.trial(trial["name"]).fit) if trial["model"] == "neural" else {}
            plan, peak = fit.get("memory_plan"), fit.get("peak_device_bytes")
            if plan and peak:
                planned = plan["table_bytes"] + plan["lasting_bytes"]
                planned += max(plan["step_bytes"], plan["evaluation_bytes"])
                ratios.append(f"{gibibytes(planned)} planned, {gibibytes(peak)} measured")
        if not ratios:
            return warning("planned memory", "no network told its peak", _DEFECT)
        return ok("planned memory", "; ".join(ratios))

    def _turns(self) -> Check:
        """What it costs to train both branches on one device at once."""
        self._tell("what both cost each other on one device")
        name, branches = "both branches at once", ("trees", "neural")
        both, *alone = (
            self._run(f"turns-{len(models)}-{models[0]}", self._devices[:1], *_SMALL,
                      f"models={json.dumps(models)}")
            for models in (branches, *((branch,) for branch in branches))
        )  # fmt: skip
        found = []
        for branch, kind, own in zip(branches, ("trees", "network"), alone, strict=True):
            trials = both.first(branch), own.first(branch)
            for trial in trials:
                if trial["status"] != "done":
                    return failure(name, trial["error"], _LOG)
            beside_s, alone_s = (seconds_text(trial["fit_s"]) for trial in trials)
            found.append(f"{kind} {beside_s} ({alone_s} alone)")
        return ok(name, ", ".join(found))

    def _precisions(self) -> Iterator[Check]:
        """The default network's training in every number format."""
        formats = ("float32", "tf32", "bfloat16", "float16") if self._on_gpu else ("float32", "bfloat16")
        for device in self._devices if self._on_gpu else self._devices[:1]:
            for precision in formats:
                self._tell(f"the default network in {precision}")
                name = f"{precision} on {device.name}"
                settings = (*_DEFAULT, *_ONE_NETWORK, f"neural.precision={precision}")
                run = self._run(name.replace(" ", "-"), [device], *settings)
                trial = run.first("neural")
                if trial["status"] != "done":
                    lacks = "does not support" in trial["error"]
                    yield not_tried(name, trial["error"]) if lacks else failure(name, trial["error"], _DEFECT)
                    continue
                speed = f"{trial['train_rows_per_s']:,.0f} rows/s"
                _, curve = read_curve(run.paths.trial(trial["name"]).learning_curve)
                losses = [point.valid for point in curve if point.valid is not None]
                fell = bool(losses) and min(losses) < losses[0]
                yield (
                    ok(name, speed) if fell else failure(name, f"{speed}, but the loss did not fall", _DEFECT)
                )

    def _gangs(self) -> Iterator[Check]:
        """One network over all devices, in every way, against one device; and the speed between devices."""
        count = len(self._devices)
        if count < 2:
            yield not_tried("one network over several devices", "one device was examined")
            return
        self._tell("the sum of a tensor over all devices")
        yield self._all_reduce()
        self._tell("one network on one device")
        only = (*_SMALL, *_ONE_NETWORK, "neural.precision=float32")
        single = self._run("single", self._devices[:1], *only).first("neural")
        for strategy in _STRATEGIES:
            self._tell(f"one network over {count} devices by {strategy}")
            settings = (*only, f"neural.strategy={strategy}")
            trial = self._run(strategy, self._devices, *settings).first("neural")
            failed = [one for one in (trial, single) if one["status"] != "done"]
            if failed:
                yield failure(strategy, failed[0]["error"], _LOG)
                continue
            found, expected = (one["metrics"]["valid"]["log_loss"] for one in (trial, single))
            losses = f"log loss {found:.4f}, one device {expected:.4f}"
            if abs(found - expected) > _EQUAL * abs(expected):
                yield failure(strategy, losses, _DEFECT)
            else:
                own_s, single_s = (seconds_text(one["fit_s"]) for one in (trial, single))
                yield ok(strategy, f"{losses}; {own_s}, one device {single_s}")

    def _all_reduce(self) -> Check:
        found, why = all_reduce(self._devices)
        name = "all-reduce"
        if found is None:
            return failure(name, why, "check NCCL with NCCL_DEBUG=INFO")
        speed = f"{found['bytes_per_s'] / 1e9:.2f} GB/s, on the bus {found['bus_bytes_per_s'] / 1e9:.2f}"
        what = f"{found['backend']} over {found['ranks']} ranks: {speed}"
        return ok(name, what) if found["right"] else failure(name, f"{what}; the sums are wrong", _DEFECT)

    def _out_of_memory(self) -> Check:
        self._tell("a step that does not fit the memory")
        found, why = _answer(["-m", "sparkgpu.ops.doctor.out_of_memory"], self._devices, {})
        name = "out of memory"
        if found is None:
            return failure(name, why, _DEFECT)
        if not found["failures"]:
            return warning(name, "the memory did not run out", _DEFECT)
        what = f"{found['tried']:,} rows did not fit, {found['fits']:,} did"
        return ok(name, f"{what}, after {counted(found['failures'], 'failure')}")

    def _run(self, name: str, devices: Sequence[Device], *settings: str) -> Run:
        """A whole run on some of the devices."""
        where = ["--cpu-lanes", str(len(devices))]
        if self._on_gpu:
            where = ["--gpus", ",".join(device.visible for device in devices)]
        command = [
            "-m", "sparkgpu", "run", str(self._table), "--target", "y", *where, "--quiet", "--out",
            str(self._folder / name), *(word for setting in settings for word in ("--set", setting)),
        ]  # fmt: skip
        _, why = _output(command, _RUN_S, {})
        return Run(self._folder / name, why)


def all_reduce(devices: Sequence[Device]) -> tuple[dict[str, Any] | None, str]:
    """What `sparkgpu.ops.doctor.all_reduce` measures with a rank on each device, or why it cannot."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(len(devices))]
    return _answer([*launcher, "-m", "sparkgpu.ops.doctor.all_reduce"], devices, {"OMP_NUM_THREADS": "1"})


def _answer(
    arguments: Sequence[str], devices: Sequence[Device], environ: dict[str, str]
) -> tuple[dict[str, Any] | None, str]:
    """What a program of this folder prints as JSON in its last line, or why it printed none."""
    visible = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(device.visible for device in devices),
    }
    on_cpu = () if devices[0].kind == "cuda" else ("--cpu",)
    text, why = _output([*arguments, *on_cpu], _PROGRAM_S, {**visible, **environ})
    return (None, why) if why else (json.loads(text.strip().splitlines()[-1]), "")


def _output(arguments: Sequence[str], most_s: float, environ: dict[str, str]) -> tuple[str, str]:
    """What a Python program prints, and the last line of why it failed, if it did."""
    try:
        ended = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=most_s,
            stdin=subprocess.DEVNULL, env={**os.environ, **environ},
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
