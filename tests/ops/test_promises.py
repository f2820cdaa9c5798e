"""Each promise of docs/gpu.md has a check of the deep doctor, which what a run left proves or refutes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sparkgpu.core.host.devices import Device
from sparkgpu.core.host.gpus import Gpu, Survey
from sparkgpu.core.host.telemetry import GpuSample, Sample, append_sample
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.neural.nets.network import TabularNet
from sparkgpu.ops.doctor import deep, out_of_memory
from sparkgpu.ops.doctor.check import Check, DoctorReport

GOLDEN = Path(__file__).parents[1] / "golden" / "2026-11-23"
GIB = 2**30
CARD = Device(kind="cuda", name="cuda:0", title="NVIDIA H100", visible="GPU-0", memory_bytes=80 * GIB)
TWO = (CARD, replace(CARD, name="cuda:1", visible="GPU-1"))
SLICES = tuple(replace(card, visible=card.visible.replace("GPU", "MIG")) for card in TWO)
PLAN = dict.fromkeys(
    ("budget_bytes", "beside_bytes", "lasting_bytes", "step_bytes", "micro_rows", "eval_rows"), 1
)

Change = Callable[[dict[str, Any], dict[str, Any]], None]
"""Of a trial in ``metrics.json`` and of its ``fit.json``, before they are written."""


def examine(
    devices: Sequence[Device],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change = lambda trial, fit: None,
    places: Callable[[str], str] = lambda uuid: uuid,
    answers: dict[str, object] | None = None,
    ended: str = "",
) -> dict[str, Check]:
    """The checks where all programs are simulated: runs leave what they would leave on these GPUs."""

    def output(arguments: Sequence[str], most_s: float, environ: object) -> tuple[str, str]:
        words = list(arguments)
        if ended:
            return "", ended
        if "--out" not in words:
            program = words[-1].rpartition(".")[2]
            found = {
                "all_reduce": {"bytes_per_s": 4e11, "bus_bytes_per_s": 4e11, "backend": "nccl", "ranks": 2,
                               "right": True},
                "out_of_memory": {"peaks": [4 * GIB, 2 * GIB], "losses": [0.5, 0.5], "notes": ["halved"]},
                **(answers or {}),
            }  # fmt: skip
            return json.dumps(found[program]), ""
        asked = words[words.index("--gpus") + 1].split(",")
        gang = [device for device in devices if device.visible in asked]
        strategy = next((word.partition("=")[2] for word in words if "neural.strategy" in word), None)
        _leave(Path(words[words.index("--out") + 1]), gang, words, strategy, change, places)
        return "", ""

    monkeypatch.setattr(deep, "_output", output)
    monkeypatch.setattr(deep, "has_xgboost_with_cuda", lambda: True)
    cards = [Gpu(index=0, uuid=card.visible, title=card.title, memory_bytes=GIB, compute_capability=(9, 0))
             for card in devices]  # fmt: skip
    folder.mkdir()
    examination = deep.Examination(
        devices, Survey(gpus=tuple(cards), driver="580.65.06"), folder, lambda text: None
    )
    return {check.name: check for check in examination.checks()}


def _leave(
    root: Path, gang: Sequence[Device], words: Sequence[str], strategy: str | None, change: Change,
    places: Callable[[str], str],
) -> None:  # fmt: skip
    paths = RunPaths(root=root)
    whole = json.loads((GOLDEN / "metrics.json").read_text())
    templates = {trial["model"]: trial for trial in whole["trials"]}
    whole["trials"] = []
    for lane, device in enumerate(gang if strategy is None else gang[:1]):
        for model in ("trees", "neural"):
            if any(f'models=["{other}"]' in words for other in {"trees", "neural"} - {model}):
                continue
            trial = json.loads(json.dumps(templates[model]))
            trial |= {"name": f"{model}-s{lane}", "lane": lane, "devices": [device.name]}
            trial["device_proof"] |= {"steps": "one CUDA graph each", "tree_method_asked": "gpu_hist"}
            fit = json.loads((GOLDEN / "trials" / f"{model}-s7" / "fit.json").read_text())
            if model == "neural":
                fit |= {"memory_plan": {**PLAN, "table_bytes": GIB, "evaluation_bytes": GIB}}
                fit |= {"peak_device_bytes": 2 * GIB}
            change(trial, fit)
            whole["trials"].append(trial)
            write_json(paths.trial(trial["name"]).fit, fit)
            write_text(paths.trial(trial["name"]).learning_curve,
                       (GOLDEN / "trials" / "neural-s7" / "learning_curve.csv").read_text())  # fmt: skip
        where = GpuSample(gpu=0, gpu_uuid=places(device.visible), gpu_processes=(f"{lane}/trees:7",))
        append_sample(paths.telemetry, Sample(at=float(lane), elapsed_s=1.0, gpus=(where,)))
    whole["phases_s"] = {"lane 0 trees": {"probing H2O on the GPU": 65.0}}
    write_json(paths.metrics, whole)


def test_every_promise_of_the_documentation_has_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = examine(TWO, tmp_path / "two", monkeypatch)
    page = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text()
    promised = re.findall("`([^`]+)`", page.partition("With `--deep`")[2].partition("`doctor.json`")[0])
    # Each kind of card has a line, which the documentation does not name, and each device its own.
    assert {name for name in done if not re.search(r"driver|\b1\b", name)} == set(promised)
    assert {name for name, check in done.items() if check.status != "ok"} == {
        "trees and network in turns", "each MIG slice a lane"
    }  # fmt: skip
    found = {name: check.found for name, check in done.items()}
    assert found["trees on lane 0"].startswith("NVIDIA H100: H2O asked its library for gpu_hist, 3.1 s, 435 ")
    assert found["lane 1 on its card alone"] == "NVML saw its processes on GPU-1, 1 time"
    assert found["first use of H2O's library"].startswith("65 s")
    assert found["CUDA graph on cuda:0"] == "one CUDA graph each: 20,248 rows/s, without 20,248"
    assert found["out of memory on cuda:1"] == "2.0 GiB of 4.0 GiB; loss 0.5000 of 0.5000; halved"
    assert found["planned memory"].startswith("2.0 GiB planned, 2.0 GiB measured; ")
    assert found["all-reduce"].startswith("nccl over 2 ranks: 400.00 GB/s")
    assert found["NVIDIA H100 (9.0), driver 580.65.06"] == "torch trains; H2O XGBoost trains"


def test_what_a_run_left_refutes_its_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(trial: dict[str, Any], fit: dict[str, Any]) -> None:
        trial["device_proof"]["steps"] = "operation by operation: capturing failed (x)"
        if trial["model"] == "trees":
            trial |= {"engine": "xgboost", "notes": ["trained by xgboost: h2o-xgboost does not train"]}
        else:
            fit["peak_device_bytes"] = 3 * GIB

    silent = {"out_of_memory": {"peaks": [4 * GIB, 2 * GIB], "losses": [0.5, 0.7], "notes": ["halved"]}}
    exclusive = [replace(CARD, alone=True), TWO[1]]
    done = examine(exclusive, tmp_path / "two", monkeypatch, wrong, lambda uuid: "GPU-0", silent)
    refuted = {name: check.found for name, check in done.items() if check.status == "failure"}
    assert refuted == {
        "lane 1 on its card alone": "NVML saw its processes on GPU-0, 1 time",
        "trees and network in turns": "a network did not wait for the trees",
        "planned memory": refuted["planned memory"],
        "out of memory on cuda:0": "2.0 GiB of 4.0 GiB; loss 0.7000 of 0.5000; halved",
        "out of memory on cuda:1": "2.0 GiB of 4.0 GiB; loss 0.7000 of 0.5000; halved",
    }
    others = {name: check.found for name, check in done.items() if check.status == "warning"}
    assert others.keys() == {
        "trees on lane 0", "trees on lane 1", "CUDA graph on cuda:0", "CUDA graph on cuda:1",
        "NVIDIA H100 (9.0), driver 580.65.06",
    }  # fmt: skip
    assert others["NVIDIA H100 (9.0), driver 580.65.06"] == "torch trains; H2O XGBoost does not train"
    page = DoctorReport(
        sparkgpu="1", at="now", system="here", machine=(), deep=tuple(done.values()), seconds=1.0
    ).as_markdown()
    assert "| planned memory | REFUTED | 2.0 GiB planned, 3.0 GiB measured" in page
    assert "| neural on lane 0 | proved |" in page and "| each MIG slice a lane | not tried |" in page


def test_runs_that_leave_nothing_prove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = examine(TWO, tmp_path / "two", monkeypatch, ended="no usable GPU")
    assert {check.status for check in done.values()} == {"failure", "warning", "not tried"}
    assert done["trees on lane 1"].found == done["out of memory on cuda:0"].found == "no usable GPU"


def test_slices_are_lanes_and_no_gang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = examine(SLICES, tmp_path / "slices", monkeypatch)
    assert done["each MIG slice a lane"].status == "ok"
    assert done["each MIG slice a lane"].found.startswith("2 slices trained")
    assert done["one network over several devices"].status == "not tried"


def test_a_step_that_does_not_fit_is_cut_and_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program trains, on a CPU that is told to hold a quarter of its batch."""
    whole = out_of_memory.train(torch.device("cpu"), 512)
    forward = TabularNet.forward

    def limited(net: TabularNet, *x: torch.Tensor) -> torch.Tensor:
        if net.training and len(x[0]) > 128:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(net, *x)

    monkeypatch.setattr(TabularNet, "forward", limited)
    less = out_of_memory.train(torch.device("cpu"), 512)
    assert [point.valid for point in less.curve] == pytest.approx(
        [point.valid for point in whole.curve], rel=1e-4
    )
    assert less.notes[-1].startswith("out of memory in epoch 1, step 1: micro-batches of 128 rows")
