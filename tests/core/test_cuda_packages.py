"""Torch, XGBoost and NCCL of an environment: the builds for the cards, and one owner for each library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparkgpu.core.host import cuda_packages
from sparkgpu.core.host.cuda_packages import setup_for, twice_owned, xgboost_with_cuda
from sparkgpu.core.host.gpus import Gpu, Survey
from sparkgpu.core.host.torch_builds import TORCH, TORCH_BUILDS, choose_build, has_code

REPOSITORY = Path(__file__).parents[2]
CARDS = {
    "K80": (3, 7), "GTX 980": (5, 2), "P100": (6, 0), "V100": (7, 0), "T4": (7, 5), "A100": (8, 0),
    "L4": (8, 9), "H100": (9, 0), "B200": (10, 0), "B300": (10, 3), "RTX 5090": (12, 0),
}  # fmt: skip


def cards(*titles: str) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(
            index=place,
            uuid=f"GPU-{place}",
            title=title,
            memory_bytes=2**34,
            compute_capability=CARDS.get(title),
        )
        for place, title in enumerate(titles)
    )


@pytest.mark.parametrize(
    ("driver", "titles", "build", "without"),
    [
        ("535.54.03", ["V100"], "cu126", []),
        ("550.54.15", ["A100", "L4", "H100"], "cu126", []),
        ("570.133.20", ["RTX 5090", "A100"], "cu129", []),
        ("580.65.06", ["T4", "B300"], "cu130", []),
        ("580.65.06", ["GTX 980", "H100"], "cu126", []),
        ("580.65.06", ["B200", "V100"], "cu130", ["V100"]),
        ("580.65.06", ["K80", "V100", "P100"], "cu126", ["K80"]),
        ("590.10", ["of unknown capability"], "cu130", []),
        (None, ["A100"], "cu130", []),
        ("470.256.02", ["A100"], None, ["A100"]),
        ("550.54.15", ["B200"], None, ["B200"]),
        ("580.65.06", ["K80"], None, ["K80"]),
    ],
)
def test_the_build_is_the_preferred_one_that_serves_most_cards(
    driver: str | None, titles: list[str], build: str | None, without: list[str]
) -> None:
    choice = choose_build(cards(*titles), driver)
    assert (choice.build and choice.build.name) == build
    assert [card.title for card in choice.without] == without
    assert all(f"{title} (" in choice.why for title in without) or build is None


def test_code_runs_on_cards_of_its_generation_and_ptx_on_all_newer_ones() -> None:
    pypi = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
    assert [has_code(pypi, one) for one in ((7, 0), (7, 5), (8, 9), (10, 3), (13, 0))] == [
        False, True, True, True, False,
    ]  # fmt: skip
    assert has_code(["sm_90a"], (9, 0)) is False and has_code(["sm_90", "compute_90"], (12, 0))


def test_the_table_is_of_the_tested_torch_and_pypi_comes_first() -> None:
    constraints = (REPOSITORY / "env" / "constraints.txt").read_text()
    assert f"\ntorch=={TORCH}." in constraints
    assert [build.on_pypi for build in TORCH_BUILDS] == [True, False, False, False]


def distribution(folder: Path, name: str, *files: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
    (info / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))


def test_a_library_with_two_owners_is_named_and_the_one_of_torch_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nccl = "nvidia/nccl/lib/libnccl.so.2"
    distribution(tmp_path, "nvidia-nccl-cu13", nccl, "nvidia/__init__.py")
    distribution(tmp_path, "nvidia-cublas", "nvidia/cu13/lib/libcublas.so.13", "nvidia/__init__.py")
    distribution(tmp_path, "other", nccl)
    assert twice_owned([str(tmp_path)]) == {}
    distribution(tmp_path, "nvidia-nccl-cu12", nccl)
    twice = twice_owned([str(tmp_path)])
    assert twice == {nccl: ("nvidia-nccl-cu12", "nvidia-nccl-cu13")}
    wants = ["nvidia-nccl-cu13==2.29.7; platform_system == 'Linux'", "filelock"]
    monkeypatch.setattr(cuda_packages.importlib.metadata, "requires", lambda name: wants)
    assert cuda_packages.separate(twice) == (
        "pip uninstall -y nvidia-nccl-cu12 nvidia-nccl-cu13 && pip install --no-deps nvidia-nccl-cu13==2.29.7"
    )


def test_no_library_of_this_environment_has_two_owners() -> None:
    assert twice_owned() == {}


def test_an_environment_without_cuda_is_changed_where_gpus_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_packages, "_installed", lambda: {"torch", "xgboost-cpu", "numpy"})
    monkeypatch.setattr(cuda_packages, "torch_cuda", lambda: None)
    found = setup_for(Survey(gpus=cards("H100"), driver="580.65.06"), "2.13.0")
    assert (found.xgboost, found.gone, found.torch) == ("xgboost", ("torch", "xgboost-cpu"), "torch===2.13.0")
    assert xgboost_with_cuda() == "pip uninstall -y xgboost-cpu && pip install --no-deps 'xgboost>=2.1'"
    here = {"torch", "xgboost", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu13", "nvidia-cublas"}
    monkeypatch.setattr(cuda_packages, "_installed", lambda: here)
    monkeypatch.setattr(cuda_packages, "torch_cuda", lambda: (13, 0))
    monkeypatch.setattr(
        cuda_packages, "twice_owned", lambda: {"libnccl.so.2": ("nvidia-nccl-cu12", "nvidia-nccl-cu13")}
    )
    found = setup_for(Survey(gpus=cards("H100"), driver="580.65.06"), "2.13.0")
    assert (found.gone, found.torch) == (("nvidia-nccl-cu12", "nvidia-nccl-cu13"), "torch===2.13.0")
    old = setup_for(Survey(gpus=cards("H100"), driver="550.54.15"), "2.13.0")
    assert old.gone == ("nvidia-cudnn-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "torch")
    assert setup_for(Survey(), "2.13.0").gone == ("xgboost",)
    assert xgboost_with_cuda() == "pip install --no-deps 'xgboost>=2.1'"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(900)
def test_a_gpu_machine_resolves_to_one_nccl(tmp_path: Path) -> None:
    """What env/set_up.sh asks for, resolved by pip with the pins; it downloads metadata alone."""
    report = tmp_path / "report.json"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report",
         str(report), "-c", "env/constraints.txt", "torch===2.13.0", ".[dev]"],
        check=True, cwd=REPOSITORY, capture_output=True, timeout=850,
    )  # fmt: skip
    names = {one["metadata"]["name"] for one in json.loads(report.read_text())["install"]}
    assert {name for name in names if "nccl" in name or name.startswith("xgboost")} == {"nvidia-nccl-cu13"}
