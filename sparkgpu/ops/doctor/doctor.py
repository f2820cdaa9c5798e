"""The examination from its options to its report."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from sparkgpu import __version__
from sparkgpu.core.config.keys import DevicesConfig
from sparkgpu.core.host.devices import choose_devices, find_machine
from sparkgpu.core.host.gpus import find_gpus
from sparkgpu.core.host.reservations import scratch_folder
from sparkgpu.ops.doctor.check import Check, DoctorReport
from sparkgpu.ops.doctor.deep import Examination
from sparkgpu.ops.doctor.gpu_checks import gpu_checks, run_check
from sparkgpu.ops.doctor.machine_checks import machine_checks


def examine(
    deep: DevicesConfig | None,
    environ: Mapping[str, str],
    show: Callable[[Check], None],
    tell: Callable[[str], None],
) -> DoctorReport:
    """What can be seen in seconds; with `deep` also what trains on the devices that such a run would use.

    `show` gets each check as it is done, `tell` hears what begins. Raises `DeviceError` as a run does.
    """
    began = time.monotonic()

    def shown(checks: Iterator[Check]) -> tuple[Check, ...]:
        found = []
        for check in checks:
            show(check)
            found.append(check)
        return tuple(found)

    machine, survey = find_machine(), find_gpus()
    seen = shown(machine_checks(machine, environ)) + shown(gpu_checks(survey))
    seen += shown(iter([run_check(machine, environ)]))
    trained: tuple[Check, ...] = ()
    if deep is not None:
        devices = choose_devices(machine, gpus=deep.gpus, cpu_lanes=deep.cpu_lanes, environ=environ)
        with scratch_folder() as folder:
            trained = shown(Examination(devices, survey, folder, tell).checks())
    return DoctorReport(
        sparkgpu=__version__,
        at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        system=platform.platform(),
        machine=seen,
        deep=trained,
        seconds=round(time.monotonic() - began, 1),
    )
