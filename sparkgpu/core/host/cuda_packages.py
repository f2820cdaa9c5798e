"""What of the installed packages fits the GPUs: the builds of torch and XGBoost, and who owns libraries.

``python -m sparkgpu.core.host.cuda_packages VERSION`` prints the lines of a `Setup` with torch VERSION, for
env/set_up.sh.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from sparkgpu.core.host.gpus import Survey, find_gpus
from sparkgpu.core.host.torch_builds import TORCH_BUILDS, TorchBuild, branch_of, choose_build, dotted

_OWNERS = re.compile("nvidia-.*|torch|xgboost.*")
"""The distributions of which two may hold the same library."""

_OF_ONE_CUDA = re.compile(r"nvidia-.*-cu\d+")


def torch_cuda() -> tuple[int, int] | None:
    """The CUDA version of torch's build, without importing torch; None for a build without CUDA."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    match = re.search(r"^cuda\b[^=]*=\s*'(\d+)\.(\d+)", text, re.MULTILINE)
    return (int(match[1]), int(match[2])) if match else None


def twice_owned(paths: Sequence[str] | None = None) -> dict[str, tuple[str, ...]]:
    """The shared libraries that two distributions own, with these: whichever was installed last wrote them.

    `paths` are searched in place of ``sys.path``.
    """
    owners: dict[str, set[str]] = {}
    for found in importlib.metadata.distributions(path=list(sys.path if paths is None else paths)):
        name = _name(found)
        if _OWNERS.fullmatch(name):
            for line in (found.read_text("RECORD") or "").splitlines():
                file = line.partition(",")[0]
                if ".so" in file:
                    owners.setdefault(file, set()).add(name)
    return {file: tuple(sorted(names)) for file, names in owners.items() if len(names) > 1}


def xgboost_with_cuda() -> str:
    """The commands that install XGBoost with CUDA. Without its dependencies: torch brings NCCL."""
    install = "pip install --no-deps 'xgboost>=2.1'"
    return f"pip uninstall -y xgboost-cpu && {install}" if "xgboost-cpu" in _installed() else install


def has_xgboost_with_cuda() -> bool:
    here = _installed()
    return "xgboost" in here and "xgboost-cpu" not in here


def separate(twice: Mapping[str, tuple[str, ...]]) -> str:
    """The commands that leave each library to one owner: of several, the one that torch asks for stays."""
    names = sorted(set(chain(*twice.values())))
    asked = importlib.metadata.requires("torch") or () if find_spec("torch") else ()
    needs = {line.partition("==")[0]: line.partition(";")[0] for line in asked}
    kept = [needs[name] for name in names if name in needs] + [name for name in names if name == "xgboost"]
    return f"pip uninstall -y {' '.join(names)} && pip install --no-deps {' '.join(kept)}"


def torch_command(build: TorchBuild, version: str) -> str:
    """The commands that replace the installed torch by a build of it."""
    return f"pip uninstall -y {' '.join(_of_torch())} && pip install {build.requirement(version)}"


def _of_torch() -> list[str]:
    """Torch, if it is here, and what is of one CUDA: that of another owns files of the same names."""
    here = _installed()
    return [*(["torch"] if "torch" in here else []), *sorted(filter(_OF_ONE_CUDA.fullmatch, here))]


def _installed() -> set[str]:
    return {_name(found) for found in importlib.metadata.distributions()}


def _name(found: importlib.metadata.Distribution) -> str:
    return re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What env/set_up.sh installs for the GPUs of this machine; texts are empty where there is none.

    `gone` are the distributions to uninstall first, `torch` is what to ask pip for, and `otherwise` is what
    follows if pip cannot get it.
    """

    xgboost: str
    gone: tuple[str, ...] = ()
    torch: str = ""
    why: str = ""
    otherwise: str = ""


def setup_for(survey: Survey, version: str) -> Setup:
    """What torch `version`, XGBoost and NCCL should be on a machine."""
    here = _installed()
    cards = [gpu for gpu in survey.gpus if gpu.problem is None]
    xgboost, other = ("xgboost", "xgboost-cpu") if cards else ("xgboost-cpu", "xgboost")
    gone = {other} & here
    if not cards:
        return Setup(xgboost=xgboost, gone=tuple(gone))
    choice = choose_build(cards, survey.driver)
    if choice.build is None:
        why = f"{choice.why}, so networks cannot train on these GPUs"
        return Setup(xgboost=xgboost, gone=tuple(gone), why=why)
    gone |= set(_of_torch()) if torch_cuda() != choice.build.cuda else set(chain(*twice_owned().values()))
    return Setup(
        xgboost=xgboost,
        gone=tuple(sorted(gone)),
        torch=choice.build.requirement(version),
        why=f"torch {version} in the build for CUDA {dotted(choice.build.cuda)}: {choice.why}",
        otherwise=_otherwise(choice.build, survey.driver),
    )


def _otherwise(build: TorchBuild, driver: str | None) -> str:
    pypi = TORCH_BUILDS[0]
    if build is pypi:
        return "the torch of your index may not train on these GPUs; `sparkgpu doctor` tells."
    newer = f", or install driver {pypi.driver}" if branch_of(driver) < pypi.driver else ""
    again = "then remove .venv/.installed and source this file again"
    return (
        f"PyPI has only the build for CUDA {dotted(pypi.cuda)} (driver {pypi.driver}, compute capability "
        f"{dotted(pypi.code[0])} or newer), so networks cannot train on these GPUs. Set "
        f"PIP_EXTRA_INDEX_URL to an index that has it{newer}, {again}."
    )


if __name__ == "__main__":
    found = setup_for(find_gpus(), sys.argv[1])
    print(found.xgboost, " ".join(found.gone), found.torch, found.why, found.otherwise, sep="\n")
