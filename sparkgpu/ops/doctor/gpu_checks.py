"""The GPUs of a machine, and whether torch's and H2O's libraries fit them and the driver."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.cuda_packages import (
    has_xgboost_with_cuda,
    separate,
    torch_command,
    torch_cuda,
    twice_owned,
    xgboost_with_cuda,
)
from sparkgpu.core.host.devices import Machine, choose_devices
from sparkgpu.core.host.gpus import DENIED, Gpu, Survey
from sparkgpu.core.host.torch_builds import (
    TORCH,
    TORCH_BUILDS,
    branch_of,
    choose_build,
    dotted,
    named,
    needs_newer_driver,
    newest_needed,
    oldest_driver,
)
from sparkgpu.core.plan.devices import ONE_SLICE
from sparkgpu.core.words import gibibytes
from sparkgpu.h2o.proven import are_proven
from sparkgpu.ops.doctor.check import Check, failure, ok, warning

_H2O_CUDA = (11, 0)
_H2O_OLDEST_CODE, _H2O_NEWEST_CODE = (5, 2), (8, 0)
"""H2O 3.46 carries XGBoost 1.6.1 of CUDA 11: machine code of 5.2 to 8.0 (it runs on all 8.x), and PTX."""

_BFLOAT16 = (8, 0)
_MUCH_USED = 0.5
_LEAVE_OUT = "leave it out with --gpus, or train on the CPU with --cpu-lanes 1"


def gpu_checks(found: Survey) -> Iterator[Check]:
    """The driver, each GPU, and the libraries; one line where there is no GPU."""
    if found.problem:
        yield failure("GPU driver", found.problem, "nvidia-smi shows the same; reboot, or install the driver")
        return
    if not found.gpus:
        yield _none(found.driver)
        return
    cuda = f", CUDA up to {dotted(found.cuda)}" if found.cuda else ""
    yield ok("GPU driver", f"{found.driver or 'of unknown version'}{cuda}")
    usable = [gpu for gpu in found.gpus if gpu.problem is None]
    for gpu in found.gpus:  # those that can be used have the numbers that --gpus takes
        yield _unusable(gpu) if gpu.problem else _usable(f"GPU {usable.index(gpu)}", gpu)
    if len(usable) > 1 and any(gpu.is_slice for gpu in usable):
        yield ok("one network over several", f"not here: {ONE_SLICE}; each slice is a lane of its own")
    if usable:
        if find_spec("torch"):
            yield _torch(usable, found.driver)
        yield from _libraries()
        if find_spec("pysparkling"):
            yield _h2o(usable, found)


def _none(driver: str | None) -> Check:
    if driver is None:
        return ok("GPUs", "none, and no NVIDIA driver: runs train on the CPU")
    what = f"driver {driver} is here and lists none: it does not show cards that are newer than itself"
    return warning("GPUs", what, "if there is one (`lspci | grep -i nvidia`), install a newer driver")


def _usable(name: str, gpu: Gpu) -> Check:
    memory = gibibytes(gpu.memory_bytes) if gpu.memory_bytes else "memory unknown"
    memory += f" ({gibibytes(gpu.used_bytes)} in use)" if gpu.used_bytes else ""
    capability = f", compute capability {dotted(gpu.compute_capability)}" if gpu.compute_capability else ""
    kind = "a slice of card" if gpu.is_slice else "card"
    found = f"{gpu.title}, {memory}{capability} ({kind} {gpu.index} of nvidia-smi, {gpu.uuid})"
    if gpu.alone:
        return warning(
            name,
            f"{found}; it takes one process at a time (EXCLUSIVE_PROCESS), so trees and network take turns",
            "nvidia-smi -c 0",
        )
    if gpu.memory_bytes and gpu.used_bytes > gpu.memory_bytes * _MUCH_USED:
        return warning(name, found, "`nvidia-smi` shows who uses it: end that, or choose others with --gpus")
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


def _torch(cards: Sequence[Gpu], driver: str | None) -> Check:
    """Whether the installed build of torch runs with the driver, and has code for every card."""
    name, version, cuda = "torch", importlib.metadata.version("torch").partition("+")[0], torch_cuda()
    what = f"{version} is a build for CUDA {dotted(cuda)}" if cuda else f"{version} is a build without CUDA"
    is_listed = version.startswith(f"{TORCH}.")  # for other versions only the driver is known
    installed = next((build for build in TORCH_BUILDS if is_listed and build.cuda == cuda), None)
    if refusal := needs_newer_driver(cards, driver):
        return failure(name, f"{what}, and {refusal}", f"install driver {newest_needed(cards)} or newer")
    without = [card for card in cards if installed and not installed.runs_on(card.compute_capability)]
    if cuda is None:
        wrong = what
    elif branch_of(driver) < oldest_driver(cuda):
        wrong = f"{what}, which needs driver {oldest_driver(cuda)} or newer, and {driver} is here"
    elif without:
        wrong = f"{what}, which has no code for {named(without)}"
    else:
        return ok(name, f"{what}, which driver {driver or 'of unknown version'} runs")
    better = choose_build(cards, driver).build
    if better is None or better is installed:
        return failure(name, f"{wrong}, nor has any other build that this driver runs", _LEAVE_OUT)
    return failure(name, wrong, torch_command(better, version if is_listed else f"{TORCH}.0"))


def _libraries() -> Iterator[Check]:
    """Whether each shared library has one owner, and XGBoost is the one with CUDA."""
    if twice := twice_owned():
        files = "; ".join(f"{file} belongs to {' and '.join(owners)}" for file, owners in twice.items())
        yield failure("shared libraries", f"{files}: the last one installed wrote it", separate(twice))
    else:
        yield ok("shared libraries", "each of CUDA, torch and XGBoost has one owner")
    if find_spec("xgboost") is None:
        yield warning("engine xgboost", "not installed; it takes over where H2O fails", xgboost_with_cuda())
    elif has_xgboost_with_cuda():
        yield ok("engine xgboost", "the build with CUDA")
    else:
        what = "xgboost-cpu, which trains on no GPU; the build with CUDA takes over where H2O fails"
        yield warning("engine xgboost", what, xgboost_with_cuda())


def _h2o(cards: Sequence[Gpu], found: Survey) -> Check:
    name = "H2O XGBoost on GPUs"
    if are_proven(found.driver, cards):
        return ok(name, "it trained on such GPUs with this driver before")
    if found.cuda and found.cuda < _H2O_CUDA:
        what = f"its library needs CUDA {dotted(_H2O_CUDA)}, and the driver runs up to {dotted(found.cuda)}"
        return failure(name, what, "install a newer driver")
    told = [(card, card.compute_capability) for card in cards if card.compute_capability]
    older = [card for card, capability in told if capability < _H2O_OLDEST_CODE]
    if older:
        return failure(name, f"its library has no code for {named(older)}", _LEAVE_OUT)
    newer = [card for card, capability in told if capability[0] > _H2O_NEWEST_CODE[0]]
    if not newer:
        return ok(name, "its library has machine code for these GPUs; `sparkgpu doctor --deep` proves it")
    return warning(
        name,
        f"its library has no machine code for {named(newer)}; the driver translates it at the first use, in "
        "minutes",
        "`sparkgpu doctor --deep` proves whether it trains; if not, set trees.engine to xgboost",
    )
