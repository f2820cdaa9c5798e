"""The GPUs of this machine, as NVIDIA's driver tells of them through NVML.

NVML needs neither a CUDA context nor torch, so the parent process never touches a GPU. Each card is asked
alone: one that does not answer, or that this process may not use, hides no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SIGNS = (
    *map(Path, ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia/version")),
    Path("/usr/lib/wsl/lib/libnvidia-ml.so.1"),
)
"""Files that exist where NVIDIA's driver is loaded, or where a container or WSL was given a GPU."""

DENIED = "this process may not use it"

SLICE = "MIG-"
"""How the UUID of a slice begins."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """What CUDA calls a device: a whole GPU, or a slice of one that MIG has cut.

    `index` is NVML's number of the card, in the order of ``nvidia-smi`` (by PCI bus); `uuid` and `title` are
    the device's own. `memory_bytes` is None where the driver does not tell (slices in some containers,
    memory shared with the CPU), and `used_bytes` of it are in use now, by all processes and the driver.
    `alone` means that it takes one process at a time (compute mode EXCLUSIVE_PROCESS). `problem` tells why it
    cannot be used. `compute_capability` is such as (8, 0), None where the driver does not tell.
    """

    index: int
    uuid: str
    title: str
    memory_bytes: int | None
    used_bytes: int = 0
    alone: bool = False
    problem: str | None = None
    compute_capability: tuple[int, int] | None = None

    @property
    def is_slice(self) -> bool:
        return self.uuid.startswith(SLICE)


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The GPUs, the driver's version, the newest CUDA that it runs, and why it does not answer."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: tuple[int, int] | None = None
    problem: str | None = None


def find_gpus() -> Survey:
    """All GPUs, those included that cannot be used. Without NVIDIA's driver there are none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        sign = next((file for file in _SIGNS if file.exists()), None)
        if sign is None:
            return Survey()
        return Survey(problem=f"NVIDIA's driver is here ({sign}), but does not answer: {error}")
    try:
        cuda = answer(pynvml, "nvmlSystemGetCudaDriverVersion_v2")
        return Survey(
            gpus=tuple(
                gpu for index in range(pynvml.nvmlDeviceGetCount()) for gpu in _of_card(pynvml, index)
            ),
            driver=answer(pynvml, "nvmlSystemGetDriverVersion"),
            cuda=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
        )
    except pynvml.NVMLError as error:
        return Survey(problem=f"NVIDIA's driver cannot list its GPUs: {error}")
    finally:
        pynvml.nvmlShutdown()


def handles(nvml: Any) -> Iterator[tuple[Gpu, Any]]:
    """The GPUs that can be used, with NVML's handle of each; `nvml` is pynvml, initialised."""
    for index in range(nvml.nvmlDeviceGetCount()):
        for gpu in _of_card(nvml, index):
            with suppress(nvml.NVMLError):
                if gpu.problem is None:
                    yield gpu, nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)


def is_on_gpu(uuid: str, processes: Collection[int]) -> bool | None:
    """Whether NVML sees one of these processes on a GPU; None if that cannot be told.

    In a container the driver may list nothing, or number processes as its host does.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        running = {one.pid for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    if running & set(processes):
        return True
    return False if running and all(Path(f"/proc/{pid}").exists() for pid in running) else None


def answer(nvml: Any, question: str, *arguments: Any) -> Any:
    """The driver's answer, None where it has none: cards, drivers and containers lack different ones."""
    try:
        return getattr(nvml, question)(*arguments)
    except nvml.NVMLError:
        return None


def _of_card(nvml: Any, index: int) -> list[Gpu]:
    """A card as one device, or its slices."""
    uuid, title = "", f"GPU {index}"
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid, title = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
        mig = answer(nvml, "nvmlDeviceGetMigMode", handle)
        if mig is not None and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            return _slices(nvml, handle, index, uuid, title)
        mode = answer(nvml, "nvmlDeviceGetComputeMode", handle)
        prohibited = "its compute mode is PROHIBITED; an administrator can change it with `nvidia-smi -c 0`"
        return [
            Gpu(
                index=index,
                uuid=uuid,
                title=title,
                **_memory(nvml, handle),
                alone=mode == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
                problem=prohibited if mode == nvml.NVML_COMPUTEMODE_PROHIBITED else None,
                compute_capability=answer(nvml, "nvmlDeviceGetCudaComputeCapability", handle),
            )
        ]
    except nvml.NVMLError as error:
        denied = isinstance(error, nvml.NVMLError_NoPermission)
        problem = DENIED if denied else f"the driver says: {error}"
        return [Gpu(index=index, uuid=uuid, title=title, memory_bytes=None, problem=problem)]


def _slices(nvml: Any, handle: Any, index: int, uuid: str, title: str) -> list[Gpu]:
    found = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        own = answer(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        if own is None:
            continue  # there is no slice at this place
        found.append(
            Gpu(
                index=index,
                uuid=nvml.nvmlDeviceGetUUID(own),
                title=answer(nvml, "nvmlDeviceGetName", own) or f"{title} MIG",
                **_memory(nvml, own),
                compute_capability=answer(nvml, "nvmlDeviceGetCudaComputeCapability", handle),
            )
        )
    if found:
        return found
    why = "MIG is on and no slice is made; an administrator can make some with `nvidia-smi mig -cgi`"
    return [Gpu(index=index, uuid=uuid, title=title, memory_bytes=None, problem=why)]


def _memory(nvml: Any, handle: Any) -> dict[str, Any]:
    """The memory of a `Gpu`, by its fields."""
    found = answer(nvml, "nvmlDeviceGetMemoryInfo", handle)
    if found is None or not found.total:
        return {"memory_bytes": None}
    return {"memory_bytes": int(found.total), "used_bytes": int(found.used)}
