"""Carries out the cases of a bench, one after the other, and writes what they brought."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sparkgpu.advise.bench import page
from sparkgpu.advise.bench.rows import assumptions, simulated_rows
from sparkgpu.advise.bench.series import Series, Tell
from sparkgpu.advise.bench.table import write_bench_table
from sparkgpu.advise.bench.train import Case, Measured, Prepared, settings
from sparkgpu.advise.scaling import Link, StepCost
from sparkgpu.config.keys import RunConfig
from sparkgpu.config.models import DataLoaderConfig
from sparkgpu.config.registry.strategies import STRATEGIES
from sparkgpu.errors import ConfigError, DeviceError, TrialError
from sparkgpu.host.devices import Device, Machine, choose_devices, find_machine
from sparkgpu.host.scratch import scratch_folder
from sparkgpu.rundir.bench import BenchRecord
from sparkgpu.rundir.files import write_json, write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.demo import DEMO, DEMO_SOURCE, with_demo_target
from sparkgpu.table.demo_table import resolve_demo
from sparkgpu.table.source import find_source
from sparkgpu.words import counted

_ALL_REDUCE_S = 120.0
_SMALLER = 4
"""The second batch size at which one device is measured is so many times smaller."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every bench is asked: the table, how many of its rows, and for how many epochs.

    `epochs` None means as many as take some seconds.
    """

    config: RunConfig
    rows: int
    epochs: int | None


def scaling(
    asked: Asked,
    counts: Sequence[int],
    strategies: Sequence[str],
    simulate: Sequence[int],
    given: Link | None,
    tell: Tell,
) -> Iterator[BenchRecord]:
    """Time one network on one device and, over more devices, by each strategy and as lanes.

    Yields the table after each configuration, the whole of it last. Raises `ConfigError` for an unknown
    strategy or no devices, and `DeviceError` for more than there are.
    """
    _check_strategies(strategies)
    machine, devices = _devices(asked.config, counts)
    on_cpu = devices[0].kind == "cpu"
    cases = [Case(name="single", strategy="single", devices=1, keys={})]
    for count in sorted({count for count in counts if count > 1}):
        cases += [
            Case(name=name, strategy=name, devices=count, keys={}) for name in strategies if name != "single"
        ]
        cases.append(Case(name="lanes", strategy="single", devices=count, keys={}))
    price = asked.config.cost.price_per_hour
    notes = []
    if "dp" in strategies and on_cpu and len(cases) > 1:
        notes.append("on the CPU, dp is one process that trains as single does: it copies to GPUs only")
    title = f"Scaling on {devices[0].title}"
    with scratch_folder() as folder:
        prepared, config = _prepared(asked, devices[0], folder, tell)
        for case in cases:  # refuse what cannot be before anything trains
            _check_case(case, config)
        series = Series(config, prepared, devices, machine, folder, tell)
        yield from series.tables(title, cases, price, notes)
        if simulate:
            found, batch = series.found, series.found[0].batch
            small = Case(name=f"single, batch {batch // _SMALLER}", strategy="single", devices=1,
                         keys={"batch_size": max(1, batch // _SMALLER)})  # fmt: skip
            second = series.trained(small)
            cost = StepCost.of(_step(found[0]), _step(second))
            link = given or _measured_link(devices, tell)
            whole = series.table(title, cases, price, notes)
            rows = simulated_rows(
                found, simulate, strategies, cost=cost, link=link, cores=machine.cores, price=price
            )
            said = [f"simulated: {sentence}" for sentence in assumptions(cost, link, found[0])]
            yield whole.model_copy(update={"rows": (*whole.rows, *rows), "notes": (*whole.notes, *said)})


def loading(asked: Asked, workers: Sequence[int], tell: Tell) -> Iterator[BenchRecord]:
    """Time the ways in which training rows reach the device, with the same network and the same batches.

    Yields the table after each of them.
    """
    machine, devices = _devices(asked.config, [1])
    on_gpu = devices[0].kind == "cuda"
    cases = [
        Case(name="resident", strategy="single", devices=1, keys={"data": "resident"}),
        Case(name="stream", strategy="single", devices=1, keys={"data": "stream"}),
    ]
    for number in workers:
        for pin in (False, True) if on_gpu else (False,):
            for prefetch in (2, 4) if number else (2,):
                loader = DataLoaderConfig(num_workers=number, pin_memory=pin, prefetch_factor=prefetch)
                name = f"DataLoader, {counted(number, 'worker')}"
                name += f", prefetch {prefetch}" if number else ""
                name += ", pinned" if pin else ""
                keys = {"data": "dataloader", "dataloader": loader}
                cases.append(Case(name=name, strategy="single", devices=1, keys=keys))
    notes = []
    if not on_gpu:
        notes.append("pinned memory speeds up copies to a GPU; there is none here, so it was not tried")
    with scratch_folder() as folder:
        prepared, config = _prepared(asked, devices[0], folder, tell)
        series = Series(config, prepared, devices, machine, folder, tell)
        price = asked.config.cost.price_per_hour
        yield from series.tables(f"Loading on {devices[0].title}", cases, price, notes)


def write_bench(bench: BenchRecord, folder: Path) -> None:
    """Write ``bench.md``, ``bench.csv`` and ``bench.json`` to `folder`."""
    write_text(folder / "bench.md", page.as_markdown(bench.title, bench.rows, bench.notes))
    write_text(folder / "bench.csv", page.as_csv(bench.rows))
    write_json(folder / "bench.json", bench)


def new_folder(out: Path | None, started: float) -> Path:
    """The folder of a bench. Raises `ConfigError` if it is not a new or an empty folder."""
    folder = out or Path("reports") / f"bench-{datetime.fromtimestamp(started, UTC):%Y%m%dT%H%M%SZ}"
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"--out {folder}: it is not an empty folder. Choose a new one.")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written ({error.strerror}). Choose another.") from None
    return folder


def counts_of(option: str, text: str, least: int = 1) -> tuple[int, ...]:
    """Numbers separated by commas. Raises `ConfigError` if they are not whole numbers from `least` on."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < least:
        raise ConfigError(
            f"{option} {text}: give whole numbers from {least} on with commas between them, such as 1,2,4."
        )
    return tuple(dict.fromkeys(found))


def _check_strategies(strategies: Sequence[str]) -> None:
    for name in strategies:
        try:
            STRATEGIES.find(name)
        except ValueError as error:
            raise ConfigError(f"--strategies {name}: {error}") from None


def _check_case(case: Case, config: RunConfig) -> None:
    from sparkgpu.plan.strategy import check_strategy

    if STRATEGIES.find(case.strategy).is_gang:
        check_strategy(config.neural, config.neural.hidden or (), case.strategy, case.devices)


def _devices(config: RunConfig, counts: Sequence[int]) -> tuple[Machine, tuple[Device, ...]]:
    """The devices to train on; on the CPU at least as many lanes as the largest of `counts`."""
    machine, most = find_machine(), max(counts)
    gpus, lanes = config.devices.gpus, config.devices.cpu_lanes
    devices = choose_devices(machine, gpus=gpus, cpu_lanes=lanes, environ=os.environ)
    if devices[0].kind == "cpu" and len(devices) < most <= machine.cores:
        devices = choose_devices(machine, gpus=None, cpu_lanes=most, environ=os.environ)
    if most > len(devices):
        kind = "GPU" if devices[0].kind == "cuda" else "core"
        there = counted(len(devices) if kind == "GPU" else machine.cores, kind)
        raise DeviceError(
            f"--devices {most}: this machine has {there} to use. Ask for fewer, or add --simulate {most}."
        )
    return machine, devices[:most]


def _prepared(asked: Asked, device: Device, folder: Path, tell: Tell) -> tuple[Prepared, RunConfig]:
    config = asked.config
    text = config.data.source
    tell("preparing some rows of the table")
    if text is None or text == DEMO:
        source = resolve_demo(DEMO_SOURCE, folder)
        config = with_demo_target(config)
    else:
        source = find_source(text)
    paths = RunPaths(root=folder / "prepared")
    schema = write_bench_table(paths, source, config, asked.rows)
    filled = settings(config, schema, device.name, asked.epochs)
    return Prepared(paths=paths, schema=schema, source=source), filled


def _step(found: Measured) -> tuple[int, float]:
    """A batch's rows, and the seconds of a step."""
    return found.batch, found.epoch_s / max(1, -(-found.train_rows // found.batch))


def _measured_link(devices: Sequence[Device], tell: Tell) -> Link:
    """The speed between two devices (two processes, on the CPU or with one GPU), by an all-reduce."""
    tell("the speed between two devices")
    on_gpu = len(devices) > 1 and devices[0].kind == "cuda"
    visible = ",".join(device.visible for device in devices[:2]) if on_gpu else ""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "sparkgpu.doctor.all_reduce", *([] if on_gpu else ["--cpu"]),
    ]  # fmt: skip
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": visible}
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_ALL_REDUCE_S,
            stdin=subprocess.DEVNULL,
            env=environ,
        )
        found = json.loads(ended.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        raise TrialError(
            "--simulate: the speed between two devices could not be measured. Give --bandwidth and --latency."
        ) from None
    where = f"{found['backend']}, two {'GPUs' if on_gpu else 'processes of this machine'}"
    return Link(
        bytes_per_s=found["bus_bytes_per_s"], latency_s=found["latency_s"], origin=f"measured here ({where})"
    )
