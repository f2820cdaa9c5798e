"""The doctor names what is wrong with the command that mends it, and proves the rest by training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from simulated_driver import Simulate

from sparkgpu.core.host.cuda_packages import torch_cuda
from sparkgpu.core.host.devices import Machine
from sparkgpu.core.host.gpus import DENIED, Gpu, Survey
from sparkgpu.ops.doctor.check import Check, DoctorReport
from sparkgpu.ops.doctor.gpu_checks import gpu_checks, run_check

Call = Callable[..., tuple[int, str, str]]

GIB = 2**30


def doctor(*options: str, cwd: Path, code: int = 0, environ: Mapping[str, str] = os.environ) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "sparkgpu", "doctor", *options],
        capture_output=True, text=True, timeout=290, cwd=cwd, env=environ,
    )  # fmt: skip
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.process
def test_it_looks_at_the_machine_without_loading_anything_heavy(java: Path, tmp_path: Path) -> None:
    text = doctor(cwd=tmp_path)
    for word in ("Python", "packages", "Java", "H2O XGBoost", "ports", "memory", "disk", "GPU"):
        assert word in text
    program = (
        "import sys\n"
        "from sparkgpu.cli import main\n"
        "try:\n"
        "    main(['doctor'])\n"
        "finally:\n"
        "    heavy = {'torch', 'pyspark', 'h2o', 'pandas', 'xgboost'} & sys.modules.keys()\n"
        "    assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_has_its_command_and_status_3(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    (tmp_path / "sitecustomize.py").write_text(
        "import sparkgpu.ops.doctor.machine_checks as checks\n"
        "checks._PACKAGES = (*checks._PACKAGES, 'no-such-package')\n"
    )
    found = json.loads(doctor("--json", cwd=tmp_path, code=3, environ=environ))
    failed = [check for check in found["machine"] if check["status"] == "failure"]
    assert failed and all(check["fix"] for check in failed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--cpu-lanes", "1"],
            "--gpus, --cpu-lanes and --out: without --deep nothing is trained. Add --deep.",
        ),
        (["--deep", "--cpu-lanes", "0"], "configuration: devices.cpu_lanes = 0 does not fit: "),
        (
            ["--deep", "--cpu-lanes", "1", "--gpus", "0"],
            "configuration: both GPUs and cpu_lanes are asked for",
        ),
        (
            ["--deep", "--out", "none"],
            "--out none: it is not a folder that you may write to. Name another one.",
        ),
    ],
)
def test_wrong_options_are_refused_before_anything_is_tried(
    call: Call, options: list[str], message: str
) -> None:
    code, out, err = call("doctor", *options)
    assert (code, out) == (2, "")
    assert err.startswith(f"sparkgpu: {message}") and err.count("\n") == 1


def test_it_says_what_a_run_would_train_on(tmp_path: Path) -> None:
    machine = Machine(cores=8, memory_bytes=GIB)
    assert run_check(machine, {}).found == "trains on cpu (CPU)"
    hidden = run_check(machine, {"CUDA_VISIBLE_DEVICES": "0"})
    assert hidden.status == "failure" and "CUDA_VISIBLE_DEVICES=0 names a GPU" in hidden.found


def found(survey: Survey) -> dict[str, Check]:
    return {check.name: check for check in gpu_checks(survey)}


def test_each_state_of_a_gpu_has_its_line() -> None:
    def one(**changes: object) -> Check:
        card = Gpu(**{"index": 3, "uuid": "GPU-3", "title": "Board", "memory_bytes": GIB, **changes})  # type: ignore[arg-type]
        lines = found(Survey(gpus=(card,), driver="550", cuda=(12, 4)))
        return lines.get("GPU 0") or lines["card 3 of nvidia-smi"]

    assert one().status == "ok" and "card 3 of nvidia-smi, GPU-3" in one().found
    assert "no bfloat16" in one(compute_capability=(7, 5)).found
    assert "memory unknown" in one(memory_bytes=None).found
    assert (
        one(used_bytes=GIB // 4).status == "ok"
        and "1.0 GiB (0.2 GiB in use)" in one(used_bytes=GIB // 4).found
    )
    assert (one(used_bytes=GIB).status, "nvidia-smi" in one(used_bytes=GIB).fix) == ("warning", True)
    assert (one(alone=True).status, one(alone=True).fix) == ("warning", "nvidia-smi -c 0")
    assert one(problem=DENIED).status == "warning"
    lost = one(problem="the driver says: GPU is lost")
    assert lost.status == "failure" and "GPU is lost" in lost.found and "reboot" in lost.fix
    assert one(problem="its compute mode is PROHIBITED; ... `nvidia-smi -c 0`").fix == "nvidia-smi -c 0"
    assert found(Survey(problem="the driver is silent"))["GPU driver"].status == "failure"
    assert found(Survey())["GPUs"].status == "ok"
    unseen = found(Survey(driver="550.54.15"))["GPUs"]
    assert unseen.status == "warning" and "it does not show cards that are newer than itself" in unseen.found


def test_a_driver_that_is_too_old_for_the_libraries_is_named() -> None:
    old = Survey(
        gpus=(Gpu(index=0, uuid="GPU-0", title="Board", memory_bytes=GIB, compute_capability=(7, 0)),),
        driver="440", cuda=(10, 2),
    )  # fmt: skip
    lines = found(old)
    assert lines["H2O XGBoost on GPUs"].status == "failure"
    assert "needs CUDA 11.0, and the driver runs up to 10.2" in lines["H2O XGBoost on GPUs"].found
    assert lines["torch"].found.endswith(
        "driver 440 is older than any build of torch 2.13 needs (525 or newer)"
    )
    assert lines["torch"].fix == "install driver 525 or newer"
    new = Survey(
        gpus=(Gpu(index=0, uuid="GPU-0", title="B200", memory_bytes=GIB, compute_capability=(10, 0)),),
        driver="580", cuda=(13, 0),
    )  # fmt: skip
    assert found(new)["H2O XGBoost on GPUs"].status == "warning"


def test_code_of_8_0_runs_on_every_card_of_8_and_none_older_than_5_2_is_usable() -> None:
    def h2o(*capabilities: tuple[int, int]) -> Check:
        cards = tuple(
            Gpu(
                index=place,
                uuid=f"GPU-{place}",
                title=f"Board {place}",
                memory_bytes=GIB,
                compute_capability=one,
            )
            for place, one in enumerate(capabilities)
        )
        return found(Survey(gpus=cards, driver="580.65.06", cuda=(13, 0)))["H2O XGBoost on GPUs"]

    assert h2o((6, 0), (7, 5), (8, 0), (8, 6), (8, 9)).status == "ok"
    assert (
        "no machine code for Board 1 (9.0), Board 2 (12.0); the driver" in h2o((8, 9), (9, 0), (12, 0)).found
    )
    assert (h2o((5, 0)).status, h2o((5, 0)).found) == ("failure", "its library has no code for Board 0 (5.0)")


@pytest.mark.process
def test_the_table_of_the_documentation_is_what_the_doctor_says(simulate: Simulate) -> None:
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("doctor_answers.py"))],
        env=simulate(), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    table = ended.stdout.splitlines()
    assert len(table) == 8
    page = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text().splitlines()
    assert [line for line in page if line in table] == table


def test_the_cuda_of_torch_is_read_without_loading_it() -> None:
    import torch

    expected = torch.version.cuda
    assert torch_cuda() == (tuple(map(int, expected.split(".")[:2])) if expected else None)


def test_the_page_is_a_table_that_text_cannot_break() -> None:
    report = DoctorReport(
        sparkgpu="1", at="now", system="here", seconds=3.2,
        machine=(Check(name="a|b", status="ok", found="two\nlines"),),
        deep=(Check(name="c", status="failure", found="no", fix="yes"),),
    )  # fmt: skip
    assert report.status == "failure"
    lines = report.as_markdown().splitlines()
    assert "| a\\|b | ok | two lines |  |" in lines and "| c | REFUTED | no | yes |" in lines


@pytest.mark.slow
@pytest.mark.spark
def test_on_cpu_lanes_it_trains_everything_and_leaves_its_page(tmp_path: Path) -> None:
    doctor("--deep", "--cpu-lanes", "2", cwd=tmp_path)
    report = DoctorReport.model_validate_json((tmp_path / "doctor.json").read_text())
    assert report.status != "failure"
    done = {check.name: check for check in report.deep}
    for lane in range(2):
        assert done[f"trees on lane {lane}"].found.startswith("CPU: H2O asked its library for hist, ")
        assert done[f"neural on lane {lane}"].status == "ok"
    for name in ("float32 on cpu", "all-reduce", "ddp", "fsdp", "tp", "pp"):
        assert done[name].status == "ok", done[name]
    assert (tmp_path / "doctor.md").read_text().startswith("# sparkgpu doctor: ")
