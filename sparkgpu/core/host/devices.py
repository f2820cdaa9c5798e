"""The devices of this machine, and the choice of those for a run.

An index counts the usable GPUs and MIG slices in the order of ``nvidia-smi`` (by PCI bus) or, if
``CUDA_VISIBLE_DEVICES`` is set, the entries of that list. A GPU that is here but cannot be used is never
taken for none: the run ends with the reason, unless CPU lanes are asked for.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.gpus import DENIED, SLICE, Gpu, find_gpus
from sparkgpu.core.host.processor import has_amx, usable_cores
from sparkgpu.core.words import listed

_CGROUP, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_VISIBLE, _ORDER, _BY_PLACE = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
_HIDES_ALL = ("", "-1", "NoDevFiles")
_SLURM = "SLURM_JOB_GPUS"
_LEAST_ADDRESSES = 4 * 2**30  # with fewer, OpenBLAS tries for ever to start


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The cores and the memory that this process may use, the GPUs, and the driver's version.

    `gpus` holds those that cannot be used as well; `gpu_problem` tells why the driver does not answer.
    `has_amx` means that the processor has a unit for bfloat16 matrix products.
    """

    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    gpu_problem: str | None = None
    has_amx: bool = False


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device chosen for a lane.

    `name` is ``cuda:<index>`` or ``cpu``. `visible` is the value of the lane's ``CUDA_VISIBLE_DEVICES`` (an
    empty string hides every GPU from a CPU lane). `memory_bytes` is the GPU's, if the driver tells it, of
    which others use `used_bytes` already, and `alone` means that it takes one process at a time.
    """

    kind: Literal["cuda", "cpu"]
    name: str
    title: str
    visible: str
    memory_bytes: int | None = None
    used_bytes: int = 0
    alone: bool = False

    @property
    def free_bytes(self) -> int | None:
        return None if self.memory_bytes is None else max(0, self.memory_bytes - self.used_bytes)

    @property
    def is_slice(self) -> bool:
        return self.visible.startswith(SLICE)


def find_machine() -> Machine:
    """Inspect the machine. Raises `DeviceError` if the shell's limit of addresses is too small for a run."""
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    addresses = sys.maxsize if addresses == resource.RLIM_INFINITY else addresses
    if addresses < _LEAST_ADDRESSES:
        raise DeviceError(
            f"this shell allows a process {addresses / 2**30:.1f} GiB of addresses, and a worker needs "
            f"{_LEAST_ADDRESSES >> 30}. Raise the limit with `ulimit -v unlimited`."
        )
    found = find_gpus()
    available_bytes = min(int(psutil.virtual_memory().available), addresses)
    cores, memory_bytes = _allowed(usable_cores(), available_bytes)
    return Machine(
        cores=cores,
        memory_bytes=memory_bytes,
        gpus=found.gpus,
        driver=found.driver,
        gpu_problem=found.problem,
        has_amx=has_amx(),
    )


def _allowed(cores: int, available_bytes: int) -> tuple[int, int]:
    """The cores and the memory that are left within the limits of this process's control groups.

    A container, Slurm and systemd set them, each on a level of its own; affinity masks and the host's figures
    ignore them. Both versions of control groups are read.
    """
    for folder in _control_groups():
        quota = _numbers(folder, "cpu.max") or _numbers(folder, "cpu.cfs_quota_us", "cpu.cfs_period_us")
        if quota and quota[0] > 0:
            cores = min(cores, max(1, quota[0] // quota[1]))
        memory = _numbers(folder, "memory.max", "memory.current")
        memory = memory or _numbers(folder, "memory.limit_in_bytes", "memory.usage_in_bytes")
        if memory:
            left = memory[0] - memory[1] + _reclaimable(folder)
            available_bytes = min(available_bytes, max(0, left))
    return cores, available_bytes


def _control_groups() -> Iterator[Path]:
    """The folders of this process's control groups, and of the groups that hold these."""
    try:
        lines = _OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            root = _CGROUP / name
            own = root / path.lstrip("/")
            yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(root))


def _reclaimable(folder: Path) -> int:
    """The bytes of cached files that count as used and that the kernel gives back when they are needed."""
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    found = dict(line.split(maxsplit=1) for line in lines)
    return int(found.get("total_inactive_file", found.get("inactive_file", 0)))


def _numbers(folder: Path, *files: str) -> list[int]:
    """The whole numbers in these files; none if one is absent or holds a word, such as ``max``."""
    try:
        return [int(word) for file in files for word in (folder / file).read_text(encoding="ascii").split()]
    except (OSError, ValueError):
        return []


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
        if not visible and (why := _why_none(machine, environ)):
            raise DeviceError(f"{why}. To train on the CPU, ask for it with --cpu-lanes 1.")
        return tuple(_cuda(index, gpu) for index, gpu in enumerate(visible)) or (_cpu(),)
    if gpus == "all":
        if not visible:
            raise DeviceError(
                f"--gpus all: {_what_is_there(machine, visible, environ)}. {_instead(machine, environ)}"
            )
        return tuple(_cuda(index, gpu) for index, gpu in enumerate(visible))
    asked = ",".join(gpus)
    chosen: dict[str, Device] = {}
    for name in gpus:
        index = _find(name, visible)
        if index is None:
            choose = f"Choose from {listed(range(len(visible)))}." if visible else _instead(machine, environ)
            raise DeviceError(
                f"--gpus {asked}: no device {name}; {_what_is_there(machine, visible, environ)}. {choose}"
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
    """The GPUs that CUDA shows; as in CUDA, the list ends at its first invalid or repeated entry.

    Raises `DeviceError` if a number in the list may mean one GPU to CUDA and another one to ``nvidia-smi``.
    """
    usable = tuple(gpu for gpu in machine.gpus if gpu.problem is None)
    value = environ.get(_VISIBLE)
    if value is None:
        return usable
    found: list[Gpu] = []
    for entry in value.split(","):
        gpu = _listed(entry.strip(), machine, environ)
        if gpu is None or gpu in found or gpu not in usable:
            break
        found.append(gpu)
    return tuple(found)


def _listed(entry: str, machine: Machine, environ: Mapping[str, str]) -> Gpu | None:
    """What one entry of ``CUDA_VISIBLE_DEVICES`` names."""
    if not entry.isdecimal():
        index = _find(entry, machine.gpus)
        return None if index is None else machine.gpus[index]
    # CUDA numbers the cards that this process may use, and of one that MIG has cut it takes the first slice.
    cards: dict[int, Gpu] = {}
    for gpu in machine.gpus:
        if gpu.problem != DENIED:
            cards.setdefault(gpu.index, gpu)
    kinds = list(dict.fromkeys(gpu.title for gpu in cards.values() if not gpu.is_slice))
    if len(kinds) > 1 and environ.get(_ORDER) != _BY_PLACE:
        raise DeviceError(
            f"{_VISIBLE}={environ[_VISIBLE]}: this machine has different GPUs ({listed(kinds)}), which CUDA "
            f"numbers by their speed and nvidia-smi by their place. Set {_ORDER}={_BY_PLACE}, or name them "
            "by UUID (`nvidia-smi -L`)."
        )
    number = int(entry)
    return list(cards.values())[number] if number < len(cards) else None


def _what_is_there(machine: Machine, visible: Sequence[Gpu], environ: Mapping[str, str]) -> str:
    value = environ.get(_VISIBLE)
    limit = f" ({_VISIBLE}={value})" if value is not None else ""
    if visible:
        return f"visible devices are {listed(range(len(visible)))}{limit}"
    return _why_none(machine, environ) or f"no GPU is visible here{limit}"


def _instead(machine: Machine, environ: Mapping[str, str]) -> str:
    """What to do where no GPU can be used."""
    if _why_none(machine, environ):
        return "To train on the CPU, ask for it with --cpu-lanes 1."
    return "Leave --gpus out to use the CPU."


def _why_none(machine: Machine, environ: Mapping[str, str]) -> str | None:
    """Why no GPU can be used although one is here; None if there is none, or if all are hidden on purpose."""
    value = environ.get(_VISIBLE)
    if value is not None and value.split(",")[0].strip() in _HIDES_ALL:
        return None
    if machine.gpu_problem:
        return machine.gpu_problem
    if value is not None:
        here = listed(gpu.uuid for gpu in machine.gpus)
        what = f"none of the GPUs here ({here})" if here else "a GPU, and NVIDIA's driver is not here"
        return f"{_VISIBLE}={value} names {what}"
    if machine.gpus:
        reasons = dict.fromkeys(f"GPU {gpu.index}: {gpu.problem}" for gpu in machine.gpus)
        return "no GPU of this machine can be used (" + "; ".join(reasons) + ")"
    if given := environ.get(_SLURM):
        return f"Slurm gave this job GPUs ({_SLURM}={given}), but NVIDIA's driver is not here"
    return None


def _cuda(index: int, gpu: Gpu) -> Device:
    # The UUID, not the index: it names the same device for any order or list of devices in the child.
    return Device(
        kind="cuda",
        name=f"cuda:{index}",
        title=gpu.title,
        visible=gpu.uuid,
        memory_bytes=gpu.memory_bytes,
        used_bytes=gpu.used_bytes,
        alone=gpu.alone,
    )


def _cpu() -> Device:
    return Device(kind="cpu", name="cpu", title="CPU", visible="")
