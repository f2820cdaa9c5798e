"""The devices of this machine, and the choice of those for a run.

GPUs are read through NVML, which needs neither a CUDA context nor torch, so the parent process never touches
a GPU. An index counts the visible GPUs in the order of ``nvidia-smi`` (by PCI bus) or, if
``CUDA_VISIBLE_DEVICES`` is set, the entries of that list.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from sparkgpu.errors import DeviceError
from sparkgpu.words import listed

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One physical GPU: its NVML index, UUID, product name and memory in bytes."""

    index: int
    uuid: str
    title: str
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The cores and the memory that this process may use, the GPUs, and the driver's version."""

    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device chosen for a lane.

    `name` is ``cuda:<index>`` or ``cpu``. `visible` is the value of the lane's ``CUDA_VISIBLE_DEVICES`` (an
    empty string hides every GPU from a CPU lane).
    """

    kind: Literal["cuda", "cpu"]
    name: str
    title: str
    visible: str


def find_machine() -> Machine:
    """Inspect the machine. An absent or broken GPU driver counts as no GPUs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpus, driver = _nvml_gpus()
    return Machine(cores=_cgroup_cores(cores), memory_bytes=_memory_bytes(), gpus=gpus, driver=driver)


def _nvml_gpus() -> tuple[tuple[Gpu, ...], str | None]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), None
    try:
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(
                Gpu(
                    index=index,
                    uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
                    title=_text(pynvml.nvmlDeviceGetName(handle)),
                    memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                )
            )
        return tuple(gpus), _text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return (), None
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _cgroup_cores(cores: int) -> int:
    """The number of cores that a container's CPU quota allows (cgroup v2); the affinity mask ignores it."""
    try:
        quota, period = (_CGROUP / "cpu.max").read_text(encoding="ascii").split()
        return min(cores, max(1, int(quota) // int(period))) if quota != "max" else cores
    except (OSError, ValueError):
        return cores


def _memory_bytes() -> int:
    """The memory available now: that of the host, or less under a container's limit."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = (_CGROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        return min(available, int(limit) - used) if limit != "max" else available
    except (OSError, ValueError):
        return available


def choose_devices(
    machine: Machine,
    *,
    gpus: Literal["all"] | Sequence[str] | None,
    cpu_lanes: int | None,
    environ: Mapping[str, str],
) -> tuple[Device, ...]:
    """One device per lane, in the requested order.

    `gpus` are indices, UUIDs (or their unambiguous beginnings) or ``"all"``. None means every visible GPU, or
    one CPU lane if there is none. Raises `DeviceError` with the devices that exist; the CPU never replaces a
    GPU that was asked for.
    """
    if cpu_lanes is not None:
        if cpu_lanes > machine.cores:
            raise DeviceError(
                f"--cpu-lanes {cpu_lanes}: {machine.cores} cores are usable here and each lane needs at "
                f"least one; ask for at most {machine.cores}."
            )
        return tuple(_cpu() for _ in range(cpu_lanes))
    visible = _visible(machine, environ)
    if gpus is None:
        return tuple(_cuda(index, gpu) for index, gpu in enumerate(visible)) or (_cpu(),)
    if gpus == "all":
        if not visible:
            raise DeviceError(
                f"--gpus all: {_what_is_there(visible, environ)}. Leave --gpus out to use the CPU."
            )
        return tuple(_cuda(index, gpu) for index, gpu in enumerate(visible))
    asked = ",".join(gpus)
    chosen: dict[str, Device] = {}
    for name in gpus:
        index = _find(name, visible)
        if index is None:
            choose = (
                f"Choose from {listed(range(len(visible)))}."
                if visible
                else "Leave --gpus out to use the CPU."
            )
            raise DeviceError(
                f"--gpus {asked}: no device {name}; {_what_is_there(visible, environ)}. {choose}"
            )
        gpu = visible[index]
        if gpu.uuid in chosen:
            raise DeviceError(f"--gpus {asked}: device {name} is named twice; name each device once.")
        chosen[gpu.uuid] = _cuda(index, gpu)
    if not chosen:
        raise DeviceError("--gpus: no device is named; give indices such as 0,1 or all.")
    return tuple(chosen.values())


def _find(name: str, visible: Sequence[Gpu]) -> int | None:
    if name.isdecimal():
        return int(name) if int(name) < len(visible) else None
    found = [index for index, gpu in enumerate(visible) if gpu.uuid.startswith(name)]
    return found[0] if len(found) == 1 and name else None


def _visible(machine: Machine, environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that CUDA shows; as in CUDA, the list ends at its first invalid or repeated entry."""
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return machine.gpus
    found: list[Gpu] = []
    for entry in value.split(","):
        index = _find(entry.strip(), machine.gpus)
        if index is None or machine.gpus[index] in found:
            break
        found.append(machine.gpus[index])
    return tuple(found)


def _what_is_there(visible: Sequence[Gpu], environ: Mapping[str, str]) -> str:
    value = environ.get("CUDA_VISIBLE_DEVICES")
    limit = f" (CUDA_VISIBLE_DEVICES={value})" if value is not None else ""
    if not visible:
        return f"no GPU is visible here{limit}"
    return f"visible devices are {listed(range(len(visible)))}{limit}"


def _cuda(index: int, gpu: Gpu) -> Device:
    # The UUID, not the index: it names the same device for any order or list of devices in the child.
    return Device(kind="cuda", name=f"cuda:{index}", title=gpu.title, visible=gpu.uuid)


def _cpu() -> Device:
    return Device(kind="cpu", name="cpu", title="CPU", visible="")
