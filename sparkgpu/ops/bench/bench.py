"""Carries out the cases of a bench, one after the other, and makes the table of what they brought."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.errors import ConfigError, DeviceError, TrialError
from sparkgpu.core.host.devices import Device, Machine, choose_devices, find_machine
from sparkgpu.core.host.reservations import scratch_folder
from sparkgpu.core.plan.devices import check_slices, check_strategy
from sparkgpu.core.rundir.advice import BenchRecord
from sparkgpu.core.table.demo_table import resolve_demo
from sparkgpu.core.words import counted, seconds_text
from sparkgpu.ops.advise.advice import source_of
from sparkgpu.ops.advise.sample import take_sample
from sparkgpu.ops.advise.scaling import Link, Step, fitted
from sparkgpu.ops.bench.rows import assumptions, measured_rows, simulated_rows
from sparkgpu.ops.bench.train import Case, Measured, Setting, one_network, train
from sparkgpu.ops.doctor.deep import all_reduce

Tell = Callable[[str], None]

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

    @contextmanager
    def setting(self, machine: Machine, devices: Sequence[Device], tell: Tell) -> Iterator[Setting]:
        """What the cases share; some rows of the table, and what the cases write, go at the end."""
        source, config = source_of(self.config)
        tell("preparing some rows of the table")
        with scratch_folder() as folder:
            sample = take_sample(resolve_demo(source, folder), config, self.rows, folder)
            yield Setting(
                name=source.name, sample=sample, machine=machine, devices=devices, folder=folder,
                config=one_network(config, sample, devices[0].name, self.epochs),
            )  # fmt: skip


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
    for name in strategies:
        try:
            STRATEGIES.find(name)
        except ValueError as error:
            raise ConfigError(f"--strategies {name}: {error}") from None
    machine, devices = _devices(asked.config, counts)
    cases = [Case(name="single")]
    for count in sorted({count for count in counts if count > 1}):
        spread = [name for name in strategies if name != "single"]
        cases += [Case(name=name, strategy=name, devices=count) for name in spread]
        cases.append(Case(name="lanes", devices=count))
    notes = []
    if "dp" in strategies and devices[0].kind == "cpu" and len(cases) > 1:
        notes.append("on the CPU, dp is one process that trains as single does: it copies to GPUs only")
    with asked.setting(machine, devices, tell) as setting:
        for case in cases:  # refuse what cannot be before anything trains
            if STRATEGIES.find(case.strategy).is_gang:
                check_slices(case.strategy, case.devices, slices=any(one.is_slice for one in devices))
                check_strategy(setting.config.neural, case.strategy, case.devices)
        found: list[Measured] = []
        table = None
        for table in _tables(f"Scaling on {devices[0].title}", setting, cases, found, notes, tell):
            yield table
        if simulate and table is not None:
            first = found[0]
            batch = first.batch // _SMALLER
            small = Case(name=f"single, batch {batch}", keys={"batch_size": max(1, batch)})
            fixed_s, row_s = fitted(first.step, train(small, setting).step)
            link = given or _measured_link(devices, tell)
            step = Step(
                fixed_s=fixed_s, row_s=row_s, batch=first.batch, weight_bytes=4 * first.parameters, link=link
            )
            price = asked.config.cost.price_per_hour
            rows = simulated_rows(first, simulate, strategies, step=step, price=price)
            said = [f"simulated: {sentence}" for sentence in assumptions(step)]
            yield table.model_copy(update={"rows": (*table.rows, *rows), "notes": (*table.notes, *said)})


def loading(asked: Asked, tell: Tell) -> Iterator[BenchRecord]:
    """Time training on rows that are on the device and on rows streamed from files, in the same batches.

    Yields the table after each of them.
    """
    machine, devices = _devices(asked.config, [1])
    cases = [Case(name=name, keys={"data": name}) for name in ("resident", "stream")]
    with asked.setting(machine, devices, tell) as setting:
        yield from _tables(f"Loading on {devices[0].title}", setting, cases, [], [], tell)


def _tables(
    title: str,
    setting: Setting,
    cases: Sequence[Case],
    found: list[Measured],
    notes: Sequence[str],
    tell: Tell,
) -> Iterator[BenchRecord]:
    """Train every case, add it to `found`, and yield the table after each of them."""
    for place, case in enumerate(cases):
        when = f"{place + 1} of {len(cases)}"
        if found:  # networks that share the cores take as many times longer
            networks = sum(later.networks if setting.on_cpu else 1 for later in cases[place:])
            when += f", about {seconds_text(networks * found[0].wall_s)} left"
        tell(f"training: {case.name} on {counted(case.devices, 'device')} ({when})")
        found.append(train(case, setting))
        price, cores = setting.config.cost.price_per_hour, setting.machine.cores
        rows = measured_rows(found, cores=cores, on_cpu=setting.on_cpu, price=price)
        said = [*_notes(setting, found[0]), *notes]
        if missing := len(cases) - len(rows):
            said.append(f"not finished: {missing} of {counted(len(cases), 'configuration')} are missing")
        yield BenchRecord(title=title, rows=tuple(rows), notes=tuple(said))


def _notes(setting: Setting, first: Measured) -> list[str]:
    epochs = setting.config.neural.epochs or 1
    where = "no GPU was used" if setting.on_cpu else setting.devices[0].title
    return [
        f"{setting.name}: {first.train_rows:,} training rows, {setting.sample.size.num_features} "
        f"columns; time is one pass over them, the median of {epochs - 1} after a first one",
        f"the network has {first.parameters:,} weights and trains in batches of {first.batch:,} rows, "
        "which the devices of one network share; lanes train one network each, and their rows per second "
        "are added",
        f"{counted(setting.machine.cores, 'core')}, {where}",
    ]


def counts_of(option: str, text: str, *, least: int) -> tuple[int, ...]:
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


def _measured_link(devices: Sequence[Device], tell: Tell) -> Link:
    """The speed between two devices (two processes, on the CPU or with one GPU), by an all-reduce."""
    tell("the speed between two devices")
    on_gpu = len(devices) > 1 and devices[0].kind == "cuda" and not any(one.is_slice for one in devices)
    cpu = Device(kind="cpu", name="cpu", title="CPU", visible="")
    try:
        found = all_reduce(devices[:2] if on_gpu else (cpu, cpu))
    except TrialError as error:
        raise TrialError(
            f"--simulate: the speed between two devices could not be measured ({error}). Give --bandwidth "
            "and --latency."
        ) from None
    where = f"{found['backend']}, two {'GPUs' if on_gpu else 'processes of this machine'}"
    return Link(
        bytes_per_s=found["bus_bytes_per_s"], latency_s=found["latency_s"], origin=f"measured here ({where})"
    )
