"""Every refusal is one line on standard error and the exit code of the contract."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparkgpu
from sparkgpu.cli import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working folder and a Java; signal handlers that `main` sets are restored."""
    java = tmp_path / "jdk"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").symlink_to(sys.executable)
    (java / "release").write_text('JAVA_VERSION="17.0.9"\n', encoding="ascii")
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """Run the command line here: exit code, standard output, standard error. A traceback fails the test."""

    def called(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return (int(ended.value.code or 0), *capfd.readouterr())

    return called


@pytest.fixture
def table(tmp_path: Path) -> str:
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", "x"]}), tmp_path / "flowers.parquet")
    return "flowers.parquet"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["run", "--bogus"], 2, "No such option: --bogus .*. Run `sparkgpu --help` to see what you can use."),
        (["train"], 2, "No such command 'train'. Run `sparkgpu --help` to see what you can use."),
        (["run", "a", "b"], 2, "Got unexpected extra argument.*b.*. Run `sparkgpu --help` .*"),
        (["run", "--cpu-lanes", "two"], 2, "Invalid value for '--cpu-lanes': .*"),
        (["run", "--cpu-lanes", "0"], 2, "configuration: devices.cpu_lanes = 0 does not fit: .*"),
        (["run", "--preset", "slow"], 2, "configuration: preset = .* 'fast', 'balanced' or 'best'."),
        (["run", "--task", "ranking"], 2, 'configuration: data.task = "ranking" does not fit: .*'),
        (
            ["run", "--strategy", "ddp"],
            2,
            'neural.strategy = "ddp" spreads one network over several devices, but this run has one; name '
            'more with --gpus or --cpu-lanes, or choose "single".',
        ),
        (["run", "--set", "trees.ntree=5"], 2, ".*unknown key 'trees.ntree'. Did you mean 'trees.ntrees'.*"),
        (["run", "--set", "seed"], 2, "--set seed: expected KEY=VALUE, such as --set trees.ntrees=200."),
        (["run", "--config", "absent.toml"], 2, "--config absent.toml: there is no such file. Give .*"),
        (["run", "--gpus", "0", "--cpu-lanes", "1"], 2, ".*both GPUs and cpu_lanes are asked for; .*"),
        (
            ["run", "--target", "price"],
            2,
            "--target price: the built-in demo predicts 'late'. Give a SOURCE, or leave --target out.",
        ),
        (["report", "absent"], 2, "absent: there is no such folder. Give the folder of a run."),
        (["run", "--gpus", "99"], 3, "--gpus 99: no device 99; .*"),
        (["run", "--gpus", "GPU-zz"], 3, "--gpus GPU-zz: no device GPU-zz; .*"),
        (["run", "--gpus", ""], 3, "--gpus: no device is named; give indices such as 0,1 or all."),
        (
            ["run", "--cpu-lanes", "9999"],
            3,
            "--cpu-lanes 9999: .* cores are usable here .* ask for at most .*",
        ),
        (
            ["run", "flower.parquet", "--target", "b"],
            4,
            "flower.parquet: there is no such file. Did you mean 'flowers.parquet'\\? Give Parquet, .*",
        ),
        (["run", "absent/table.csv"], 4, "absent/table.csv: .* There is no folder absent either. .*"),
        (["run", "archive.zip"], 4, "archive.zip: .zip archives cannot be read. .*"),
        (["run", "empty.csv"], 4, "empty.csv: the file is empty .*"),
        (["run", "notes.doc"], 4, "notes.doc: its format is unknown .*"),
        (["run", "table:"], 4, "table: names no table; .*"),
    ],
)
def test_a_refusal_is_one_line_with_its_exit_code(
    call: Call, table: str, arguments: list[str], code: int, line: str
) -> None:
    for name, content in (("archive.zip", b"PK"), ("empty.csv", b""), ("notes.doc", b"x")):
        Path(name).write_bytes(content)
    found, out, err = call(*arguments)
    assert re.fullmatch(f"sparkgpu: {line}\n", err), err
    assert (found, out) == (code, "")
    assert not Path("reports").exists()


def test_no_gpu_is_never_answered_with_the_cpu(
    call: Call, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, out, err = call("run", table, "--target", "b", "--gpus", "all", "--dry-run")
    assert (code, out) == (3, "")
    assert err == (
        "sparkgpu: --gpus all: no GPU is visible here (CUDA_VISIBLE_DEVICES=). "
        "Leave --gpus out to use the CPU.\n"
    )
    code, _, err = call("run", table, "--target", "b", "--set", "trees.tree_method=gpu_hist", "--dry-run")
    assert code == 3
    assert err == (
        'sparkgpu: trees.tree_method = "gpu_hist": no GPU is visible here. '
        'Set it to "hist" to train on the CPU.\n'
    )


def test_a_folder_that_holds_another_run_is_left_as_it_is(call: Call, table: str) -> None:
    Path("mine").mkdir()
    Path("mine/run.toml").write_text("seed = 1\n", encoding="utf-8")
    code, _, err = call("run", table, "--target", "b", "--cpu-lanes", "1", "--out", "mine")
    assert (code, err) == (
        2, "sparkgpu: --out mine: it holds another run. Choose a new folder, or remove this one.\n"
    )  # fmt: skip
    assert os.listdir("mine") == ["run.toml"]  # noqa: PTH208
    assert Path("mine/run.toml").read_text(encoding="utf-8") == "seed = 1\n"


def test_a_folder_that_is_not_empty_is_left_as_it_is(call: Call, table: str) -> None:
    Path("mine").mkdir()
    Path("mine/letter.txt").touch()
    code, _, err = call("run", table, "--target", "b", "--cpu-lanes", "1", "--out", "mine")
    assert code == 2
    assert (
        err == "sparkgpu: --out mine: it is not an empty folder. Choose a new folder, or remove this one.\n"
    )
    assert os.listdir("mine") == ["letter.txt"]  # noqa: PTH208


@pytest.mark.parametrize("out", ["flowers.parquet/run", "/proc/sparkgpu/run", "flowers.parquet"])
def test_a_folder_that_cannot_be_written_is_refused(call: Call, table: str, out: str) -> None:
    code, _, err = call("run", table, "--target", "b", "--cpu-lanes", "1", "--out", out)
    assert code == 2
    assert re.fullmatch(
        rf"sparkgpu: --out {re.escape(out)}: (cannot be written \(.+\)|it is not .*)\. Choose .*\n", err
    )


def test_a_machine_without_java_17_is_refused(
    call: Call, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sparkgpu.host.java._USUAL_FOLDERS", ())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21"\n', encoding="ascii")
    code, _, err = call("run", table, "--target", "b", "--cpu-lanes", "1", "--out", "mine")
    assert code == 3
    assert re.fullmatch("sparkgpu: Java 17 is needed .*; found Java 21 in .*\n", err)
    assert not Path("mine").exists()


def test_a_message_with_line_ends_from_the_user_stays_one_line(call: Call) -> None:
    code, _, err = call("run", "a\nb.csv")
    assert (code, err.count("\n")) == (4, 1)


def test_a_dry_run_shows_the_plan_and_writes_nothing(call: Call, table: str) -> None:
    before = sorted(os.listdir())  # noqa: PTH208
    code, out, err = call("run", table, "--target", "b", "--cpu-lanes", "1", "--repeats", "2", "--dry-run")
    assert (code, err) == (0, "")
    assert "flowers.parquet, target b" in out
    assert "trees-s7, neural-s7, trees-s8, neural-s8" in out
    assert sorted(os.listdir()) == before  # noqa: PTH208


@pytest.mark.process
def test_a_full_disk_is_one_line(table: str) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        found = subprocess.run(
            [sys.executable, "-m", "sparkgpu", "run", table, "--cpu-lanes", "1", "--dry-run"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False,
        )  # fmt: skip
    assert found.returncode == 3
    assert found.stderr == (
        "sparkgpu: the disk is full. Free some space, or choose a folder on another disk with --out.\n"
    )


def test_without_arguments_the_help_is_shown(call: Call) -> None:
    code, out, err = call()
    assert code == 2
    assert "run" in out + err
    assert "sparkgpu:" not in err


def test_help_and_version_end_well(call: Call) -> None:
    code, out, _ = call("run", "--help")
    assert code == 0
    for option in (
        "--target",
        "--gpus",
        "--cpu-lanes",
        "--repeats",
        "--set",
        "--dry-run",
        "--quiet",
        "--out",
    ):
        assert option in out
    assert call("version") == (0, f"{sparkgpu.__version__}\n", "")


def test_the_module_is_the_same_command() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "sparkgpu", "version"], capture_output=True, text=True, timeout=30, check=True
    )
    assert found.stdout == f"{sparkgpu.__version__}\n"
