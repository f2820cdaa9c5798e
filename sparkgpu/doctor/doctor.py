"""The examination from its options to its page."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from sparkgpu import __version__
from sparkgpu.config.keys import DevicesConfig
from sparkgpu.doctor.check import Check
from sparkgpu.doctor.deep import Examination
from sparkgpu.doctor.gpu_checks import gpu_checks, run_check
from sparkgpu.doctor.machine_checks import machine_checks
from sparkgpu.doctor.page import DoctorReport
from sparkgpu.host.devices import choose_devices, find_machine
from sparkgpu.host.gpus import find_gpus
from sparkgpu.host.scratch import scratch_folder


def look(environ: Mapping[str, str], show: Callable[[Check], None]) -> tuple[Check, ...]:
    """What can be seen in seconds without training; `show` gets each check as it is done."""
    checks: list[Check] = []
    machine = find_machine()
    for found in (machine_checks(machine, environ), gpu_checks(find_gpus()), [run_check(machine, environ)]):
        for check in found:
            show(check)
            checks.append(check)
    return tuple(checks)


def train(
    asked: DevicesConfig,
    environ: Mapping[str, str],
    show: Callable[[Check], None],
    tell: Callable[[str], None],
) -> tuple[Check, ...]:
    """What trains on the devices that a run with `asked` would use.

    Raises `DeviceError` as a run does. `tell` hears what begins.
    """
    devices = choose_devices(find_machine(), gpus=asked.gpus, cpu_lanes=asked.cpu_lanes, environ=environ)
    checks = []
    with scratch_folder() as folder:
        for check in Examination(devices, folder, tell).checks():
            show(check)
            checks.append(check)
    return tuple(checks)


def reported(machine: Sequence[Check], deep: Sequence[Check], began: float) -> DoctorReport:
    """All of it; `began` is in seconds of the system's monotonic clock."""
    return DoctorReport(
        sparkgpu=__version__,
        at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        system=platform.platform(),
        machine=tuple(machine),
        deep=tuple(deep),
        seconds=round(time.monotonic() - began, 1),
    )
