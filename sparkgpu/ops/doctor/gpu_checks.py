"""The GPUs of a machine, and whether torch's and H2O's libraries fit them and the driver."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.devices import Machine, choose_devices
from sparkgpu.core.host.gpus import DENIED, Gpu, Survey
from sparkgpu.core.words import gibibytes
from sparkgpu.ops.doctor.check import Check, failure, ok, warning

_H2O_CUDA = (11, 0)
_H2O_NEWEST_CODE = (8, 0)
"""H2O 3.46 carries XGBoost 1.6.1 of CUDA 11: machine code up to this capability, PTX for newer ones."""

_BFLOAT16 = (8, 0)
_OLDEST = (6, 0)
_WHEEL_CUDA = (12, 6)
"""Of the builds of torch for which we name the address."""


def gpu_checks(found: Survey) -> Iterator[Check]:
    """The driver, each GPU, and the libraries; one line where there is no GPU."""
    if found.problem:
        yield failure("GPU driver", found.problem, "nvidia-smi shows the same; reboot, or install the driver")
        return
    if not found.gpus:
        yield ok("GPUs", "none, and no NVIDIA driver: runs train on the CPU")
        return
    cuda = f", CUDA up to {_dotted(found.cuda)}" if found.cuda else ""
    yield ok("GPU driver", f"{found.driver or 'of unknown version'}{cuda}")
    usable = [gpu for gpu in found.gpus if gpu.problem is None]
    for gpu in found.gpus:  # those that can be used have the numbers that --gpus takes
        yield _unusable(gpu) if gpu.problem else _usable(f"GPU {usable.index(gpu)}", gpu)
    if usable:
        yield _torch(found)
        yield _h2o(found)


def _usable(name: str, gpu: Gpu) -> Check:
    memory = gibibytes(gpu.memory_bytes) if gpu.memory_bytes else "memory unknown"
    capability = f", compute capability {_dotted(gpu.compute_capability)}" if gpu.compute_capability else ""
    kind = "a slice of card" if gpu.is_slice else "card"
    found = f"{gpu.title}, {memory}{capability} ({kind} {gpu.index} of nvidia-smi, {gpu.uuid})"
    if gpu.alone:
        return warning(
            name,
            f"{found}; it takes one process at a time (EXCLUSIVE_PROCESS), so trees and network take turns",
            "nvidia-smi -c 0",
        )
    if gpu.compute_capability and gpu.compute_capability < _OLDEST:
        return warning(
            name, f"{found}; older than its libraries support", "use another card, or --cpu-lanes 1"
        )
    if gpu.compute_capability and gpu.compute_capability < _BFLOAT16:
        return ok(name, f"{found}; it has no bfloat16, so networks train in float16")
    return ok(name, found)


def _unusable(gpu: Gpu) -> Check:
    """A card that runs skip."""
    name, problem = f"card {gpu.index} of nvidia-smi", gpu.problem or ""
    what = f"{gpu.title}: {problem}" if gpu.uuid else problem
    if problem == DENIED:
        return warning(name, what, "ask the batch system for it, or leave it to others")
    command = re.search(r"`(nvidia-smi [^`]*)`", problem)
    return failure(name, what, command[1] if command else "nvidia-smi -r, or reboot; runs skip this card")


def run_check(machine: Machine, environ: Mapping[str, str]) -> Check:
    """What a run without --gpus would train on, with the variables of this shell."""
    name = "a run here"
    try:
        devices = choose_devices(machine, gpus=None, cpu_lanes=None, environ=environ)
    except DeviceError as error:
        return failure(name, str(error), "see above; --cpu-lanes 1 trains on the CPU")
    return ok(name, "trains on " + ", ".join(f"{device.name} ({device.title})" for device in devices))


def _torch(found: Survey) -> Check:
    name, cuda, driver = "torch", torch_cuda(), found.cuda
    what = f"built for CUDA {_dotted(cuda)}" if cuda else "a build without CUDA"
    needed = max(_WHEEL_CUDA[0], cuda[0] if cuda else 0)
    if driver and driver[0] < needed:
        newer = f"install a driver for CUDA {needed} first"
        return failure(name, f"{what}, and the driver runs CUDA up to {_dotted(driver)}", newer)
    if cuda is None:
        version, wheel = importlib.metadata.version("torch"), f"cu{_WHEEL_CUDA[0]}{_WHEEL_CUDA[1]}"
        fix = f"pip install --force-reinstall torch=={version.partition('+')[0]} --index-url "
        return failure(name, f"{version} is {what}", f"{fix}https://download.pytorch.org/whl/{wheel}")
    return ok(name, what)


def torch_cuda() -> tuple[int, int] | None:
    """The CUDA version of torch's build, without importing torch; None for a build without CUDA."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    match = re.search(r"^cuda\b[^=]*=\s*'(\d+)\.(\d+)", text, re.MULTILINE)
    return (int(match[1]), int(match[2])) if match else None


def _h2o(found: Survey) -> Check:
    name = "H2O XGBoost on GPUs"
    if found.cuda and found.cuda < _H2O_CUDA:
        what = f"its library needs CUDA {_dotted(_H2O_CUDA)}, and the driver runs up to {_dotted(found.cuda)}"
        return failure(name, what, "install a newer driver")
    newer = [gpu for gpu in found.gpus if (gpu.compute_capability or (0, 0)) > _H2O_NEWEST_CODE]
    if not newer:
        return ok(name, "its library has machine code for these GPUs; `sparkgpu doctor --deep` proves it")
    return warning(
        name,
        f"its library has no machine code for {newer[0].title}; the driver translates it at the first run",
        "`sparkgpu doctor --deep` proves whether it trains; if not, set trees.engine to xgboost",
    )


def _dotted(version: tuple[int, int] | None) -> str:
    return "unknown" if version is None else f"{version[0]}.{version[1]}"
