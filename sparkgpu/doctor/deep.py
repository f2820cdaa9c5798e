"""Trains on every device that was asked for, and says what each proved.

Everything runs as a user would run it: whole runs through ``python -m sparkgpu``, and small programs of this
folder in processes of their own. A step that fails is a line of the result; the others go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparkgpu.doctor.check import Check, failure, not_tried, ok, warning
from sparkgpu.host.devices import Device
from sparkgpu.rundir.files import read_json
from sparkgpu.words import counted, gibibytes, listed, seconds_text

_ROWS = 6_000
_RUN_S, _PROGRAM_S = 400.0, 120.0
_SMALL = (
    "--set", "trees.ntrees=50", "--set", "trees.early_stopping_rounds=0", "--set", "neural.architecture=mlp",
    "--set", "neural.hidden=[64,64]", "--set", "neural.epochs=5", "--set", "neural.patience=0",
    "--set", "neural.batch_size=256", "--set", "neural.dropout=0.0", "--quiet",
)  # fmt: skip
_STRATEGIES = ("ddp", "fsdp", "tp", "pp")
_EQUAL = 0.02  # of the metric: strategies round differently
_DEFECT = "send doctor.md with a bug report"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run, or why it did not finish."""

    metrics: dict[str, Any] | None
    folder: Path
    seconds: float
    why: str = ""

    def trials(self, model: str) -> list[dict[str, Any]]:
        found = self.metrics["trials"] if self.metrics else []
        return [trial for trial in found if trial["model"] == model]

    def fit_s(self, model: str) -> float:
        own = [trial["fit_s"] for trial in self.trials(model) if trial["status"] == "done"]
        return max(own, default=float("nan"))


class Examination:
    """The deep checks on some devices; `folder` holds what they write, `tell` hears what begins."""

    def __init__(self, devices: Sequence[Device], folder: Path, tell: Callable[[str], None]) -> None:
        self._devices = devices
        self._folder = folder
        self._tell = tell
        self._on_gpu = devices[0].kind == "cuda"
        self._cpu = () if self._on_gpu else ("--cpu",)
        self._table = folder / "made.parquet"

    def checks(self) -> Iterator[Check]:
        """Each check, when it is done."""
        _write_table(self._table)
        yield from self._lanes()
        yield from self._turns()
        yield from self._precisions()
        yield from self._gangs()
        yield self._out_of_memory()

    def _lanes(self) -> Iterator[Check]:
        """Trees and a network on every device at the same time, with proof."""
        count = len(self._devices)
        self._tell(f"trees and networks on {counted(count, 'device')} at once")
        run = self._run("lanes", count, "--repeats", str(count))
        for lane, device in enumerate(self._devices):
            for model, kind in (("trees", "trees"), ("neural", "network")):
                trial = next((one for one in run.trials(model) if one["lane"] == lane), None)
                yield self._proof(f"{kind} on lane {lane}", device, trial, run)
        if self._on_gpu:
            yield self._memory(run)

    def _proof(self, name: str, device: Device, trial: dict[str, Any] | None, run: Run) -> Check:
        if trial is None or trial["status"] != "done":
            return failure(name, trial["error"] if trial else run.why, "read the log of its lane")
        proof = trial["device_proof"]
        shown = proof.get("tree_method") or listed(proof.get("parameters_device", ()))
        wanted = device.name if self._on_gpu else "cpu"
        speed = f"{trial['train_rows_per_s']:,.0f} rows/s"
        found = f"{device.title}: {shown}, {seconds_text(trial['fit_s'])}, {speed}"
        if trial["devices"] != [wanted]:
            return failure(name, f"{found}; it trained on {listed(trial['devices'])}", _DEFECT)
        return ok(name, found)

    def _memory(self, run: Run) -> Check:
        """Planned against measured memory of the networks."""
        name, ratios = "planned memory", []
        for trial in run.trials("neural"):
            fit = read_json(run.folder / "trials" / trial["name"] / "fit.json")
            plan, peak = fit.get("memory_plan"), fit.get("peak_device_bytes")
            if plan and peak:
                planned = plan["table_bytes"] + plan["lasting_bytes"]
                planned += max(plan["step_bytes"], plan["evaluation_bytes"])
                ratios.append(f"{gibibytes(planned)} planned, {gibibytes(peak)} measured")
        return ok(name, "; ".join(ratios)) if ratios else warning(name, "no network told its peak", _DEFECT)

    def _turns(self) -> Iterator[Check]:
        """What it costs to train both branches on one device at once."""
        self._tell("what both cost each other on one device")
        both, trees, network = (
            self._run(name, 1, "--set", f"models={json.dumps(models)}")
            for name, models in (
                ("both", ["trees", "neural"]), ("trees-alone", ["trees"]), ("network-alone", ["neural"]),
            )
        )  # fmt: skip
        name = "both branches at once"
        failed = [run for run in (both, trees, network) if run.metrics is None]
        if failed:
            yield failure(name, failed[0].why, "read the log of its lane")
            return
        alone = (trees.fit_s("trees"), network.fit_s("neural"))
        beside = (both.fit_s("trees"), both.fit_s("neural"))
        yield ok(
            name,
            f"trees {seconds_text(beside[0])} ({seconds_text(alone[0])} alone), network "
            f"{seconds_text(beside[1])} ({seconds_text(alone[1])} alone)",
        )

    def _precisions(self) -> Iterator[Check]:
        """The default network's steps in every number format."""
        formats = ("float32", "tf32", "bfloat16", "float16") if self._on_gpu else ("float32", "bfloat16")
        for device in self._devices if self._on_gpu else self._devices[:1]:
            for precision in formats:
                self._tell(f"network steps in {precision}")
                name = f"{precision} on {device.name}"
                found, why = self._program("speed", device, precision)
                if found is None:
                    lacks = "does not support" in why
                    yield not_tried(name, why) if lacks else failure(name, why, _DEFECT)
                elif not found["loss_fell"]:
                    yield failure(name, f"{found['rows_per_s']:,} rows/s, but the loss did not fall", _DEFECT)
                else:
                    yield ok(name, f"{found['rows_per_s']:,} rows/s")

    def _gangs(self) -> Iterator[Check]:
        """One network over all devices, in every way, against one device; and the speed between devices."""
        count = len(self._devices)
        if count < 2:
            yield not_tried("one network over several devices", "one device was examined")
            return
        self._tell("the sum of a tensor over all devices")
        yield self._all_reduce(count)
        self._tell("one network on one device")
        only = ("--set", 'models=["neural"]', "--repeats", "1", "--set", "neural.precision=float32")
        single = self._run("single", 1, *only)
        expected = _valid_loss(single)
        for strategy in _STRATEGIES:
            self._tell(f"one network over {count} devices by {strategy}")
            run = self._run(strategy, count, *only, "--strategy", strategy)
            found = _valid_loss(run)
            if found is None or expected is None:
                yield failure(strategy, run.why or single.why, "read the log of its lane")
            elif abs(found - expected) > _EQUAL * abs(expected):
                yield failure(strategy, f"log loss {found:.4f}, one device {expected:.4f}", _DEFECT)
            else:
                times = (
                    f"{seconds_text(run.fit_s('neural'))}, one device {seconds_text(single.fit_s('neural'))}"
                )
                yield ok(strategy, f"log loss {found:.4f}, one device {expected:.4f}; {times}")

    def _all_reduce(self, count: int) -> Check:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
        visible = ",".join(device.visible for device in self._devices)
        found, why = self._json(
            [*launcher, "-m", "sparkgpu.doctor.all_reduce", *self._cpu], visible, {"OMP_NUM_THREADS": "1"}
        )
        name = "all-reduce"
        if found is None:
            return failure(name, why, "check NCCL with NCCL_DEBUG=INFO")
        speed = f"{found['bytes_per_s'] / 1e9:.2f} GB/s, on the bus {found['bus_bytes_per_s'] / 1e9:.2f}"
        what = f"{found['backend']} over {found['ranks']} ranks: {speed}"
        return ok(name, what) if found["right"] else failure(name, f"{what}; the sums are wrong", _DEFECT)

    def _out_of_memory(self) -> Check:
        self._tell("a step that does not fit the memory")
        found, why = self._program("out_of_memory", self._devices[0])
        name = "out of memory"
        if found is None:
            return failure(name, why, _DEFECT)
        what = f"{found['tried']:,} rows did not fit, {found['fits']:,} did"
        if not found["failures"]:
            return warning(name, "the memory did not run out", _DEFECT)
        return ok(name, f"{what}, after {counted(found['failures'], 'failure')}")

    def _run(self, name: str, lanes: int, *options: str) -> Run:
        """A whole run on the first `lanes` devices."""
        out = self._folder / name
        if self._on_gpu:
            devices = ["--gpus", ",".join(device.visible for device in self._devices[:lanes])]
        else:
            devices = ["--cpu-lanes", str(lanes)]
        command = [
            sys.executable, "-m", "sparkgpu", "run", str(self._table), "--target", "y", *devices,
            *_SMALL, "--out", str(out), *options,
        ]  # fmt: skip
        begin = time.monotonic()
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=_RUN_S, stdin=subprocess.DEVNULL
            )
            lines = (ended.stderr or ended.stdout).strip().splitlines()
            why = lines[-1] if lines and ended.returncode else ""
        except subprocess.TimeoutExpired:
            why = f"it did not end within {_RUN_S:.0f} s"
        metrics = out / "metrics.json"
        return Run(
            metrics=read_json(metrics) if metrics.exists() else None,
            folder=out,
            seconds=time.monotonic() - begin,
            why=why,
        )

    def _program(self, name: str, device: Device, *arguments: str) -> tuple[dict[str, Any] | None, str]:
        return self._json(["-m", f"sparkgpu.doctor.{name}", *arguments, *self._cpu], device.visible, {})

    def _json(
        self, arguments: Sequence[str], visible: str, environ: dict[str, str]
    ) -> tuple[dict[str, Any] | None, str]:
        """What a program prints as JSON in its last line, or why it printed none."""
        try:
            ended = subprocess.run(
                [sys.executable, *arguments], capture_output=True, text=True, timeout=_PROGRAM_S,
                stdin=subprocess.DEVNULL,
                env={
                    **os.environ, **environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                    "CUDA_VISIBLE_DEVICES": visible,
                },
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None, f"it did not end within {_PROGRAM_S:.0f} s"
        if ended.returncode:
            lines = ended.stderr.strip().splitlines() or [f"status {ended.returncode}"]
            return None, lines[-1]
        found: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
        return found, ""


def _valid_loss(run: Run) -> float | None:
    done = [trial for trial in run.trials("neural") if trial["status"] == "done"]
    return float(done[0]["metrics"]["valid"]["log_loss"]) if done else None


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
