"""Every refusal is one line on standard error and the exit code of the contract."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import typer
from typer.core import TyperGroup

import sparkgpu

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder and a Java."""
    java = tmp_path / "jdk"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").symlink_to(sys.executable)
    (java / "release").write_text('JAVA_VERSION="17.0.9"\n', encoding="ascii")
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def table(tmp_path: Path) -> str:
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", "x"]}), tmp_path / "flowers.parquet")
    return "flowers.parquet"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ("run --bogus", 2, "No such option: --bogus .*. Run `sparkgpu run --help` to see what you can use."),
        ("train", 2, "No such command 'train'. Run `sparkgpu --help` to see what you can use."),
        (
            "rum",
            2,
            "No such command 'rum'. Did you mean 'run'\\? Run `sparkgpu --help` to see what you can use.",
        ),
        ("run --set data.ignore=a", 2, """.*"a" does not fit: .* --set 'data.ignore=\\["a"\\]'."""),
        ("run a b", 2, "Got unexpected extra argument.*b.*. Run `sparkgpu run --help` .*"),
        ("schema run --json", 2, "No such option: --json. Run `sparkgpu schema --help` to .*"),
        ("bench nothing", 2, "No such command 'nothing'. Run `sparkgpu bench --help` to .*"),
        ("run --cpu-lanes two", 2, "Invalid value for '--cpu-lanes': .*"),
        ("run --task ranking", 2, 'configuration: data.task = "ranking" does not fit: .*'),
        ("run --strategy ddp", 2, 'neural.strategy = "ddp" spreads one network over several devices, .*'),
        ("run --set trees.ntree=5", 2, ".*unknown key 'trees.ntree'. Did you mean 'trees.ntrees'.*"),
        ("run --config absent.toml", 2, "--config absent.toml: there is no such file. Give .*"),
        ("run --target price", 2, "--target price: the built-in demo predicts 'late'. Give a SOURCE, or .*"),
        ("run a\nb.csv", 4, "a.b.csv: there is no such file. .*"),
        ("report absent", 2, "absent: there is no such folder. Give the folder of a run."),
        ("run --gpus 99", 3, "--gpus 99: no device 99; .*"),
        ("run --cpu-lanes 9999", 3, "--cpu-lanes 9999: .* cores are usable here .* ask for at most .*"),
        ("run flower.parquet --target b", 4, ".*: there is no such file. Did you mean 'flowers.parquet'.*"),
        ("run absent/table.csv", 4, "absent/table.csv: .* There is no folder absent either. .*"),
        ("run s3a://ada:x@lake/a.parquet", 2, "SOURCE holds a password in its address, .*"),
        ("run s3a://KEY:a/b+c@lake/a.parquet", 2, "SOURCE holds a password in its address, .*"),
        ("run --mlflow https://ada:x@flow.example.org", 2, "--mlflow holds a password in its address, .*"),
        ("run archive.zip", 4, r"archive.zip: its format is unknown \(.zip\). Give Parquet, CSV .*"),
    ],
)
def test_a_refusal_is_one_line_with_its_exit_code(
    call: Call, table: str, arguments: str, code: int, line: str
) -> None:
    Path("archive.zip").write_bytes(b"PK")
    found, out, err = call(*arguments.split(" "))
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


@pytest.mark.parametrize(
    ("file", "said"), [("run.toml", "it holds another run"), ("letter.txt", "it is not an empty folder")]
)
def test_a_folder_of_something_else_is_left_as_it_is(call: Call, table: str, file: str, said: str) -> None:
    Path("mine").mkdir()
    Path("mine", file).write_text("seed = 1\n", encoding="utf-8")
    code, _, err = call("run", table, "--target", "b", "--cpu-lanes", "1", "--out", "mine")
    assert (code, err) == (2, f"sparkgpu: --out mine: {said}. Choose a new folder, or remove this one.\n")
    assert os.listdir("mine") == [file]  # noqa: PTH208
    assert Path("mine", file).read_text(encoding="utf-8") == "seed = 1\n"


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
    monkeypatch.setattr("sparkgpu.core.host.java._USUAL_FOLDERS", ())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21"\n', encoding="ascii")
    code, _, err = call("run", table, "--target", "b", "--cpu-lanes", "1", "--out", "mine")
    assert code == 3
    assert re.fullmatch("sparkgpu: Java 17 is needed .*; found Java 21 in .*\n", err)
    assert not Path("mine").exists()


def test_a_dry_run_shows_the_plan_and_writes_nothing(call: Call, table: str) -> None:
    before = sorted(os.listdir())  # noqa: PTH208
    code, out, err = call("run", table, "--target", "b", "--cpu-lanes", "1", "--repeats", "2", "--dry-run")
    assert (code, err) == (0, "")
    assert "flowers.parquet, target b" in out
    assert "trees-s7, neural-s7, trees-s8, neural-s8" in out
    assert sorted(os.listdir()) == before  # noqa: PTH208
    code, out, err = call("run", table, "--target", "b", "--cpu-lanes", "1", "--dry-run", "--json")
    assert code == 0 and "flowers.parquet, target b" in err
    assert [trial["name"] for trial in json.loads(out)["trials"]] == ["trees-s7", "neural-s7"]


@pytest.mark.parametrize(
    ("rows", "settings", "words"),
    [
        ("{table}", [], "is in the source, too"),
        ("{other}", [], "lacks a"),
        ("{other}", ["--set", "split.kind=column", "--set", "split.column=a"], "that column says"),
        ("{gone}", [], "no such file"),
    ],
)
def test_a_dry_run_refuses_test_rows_that_do_not_belong_to_the_table(
    call: Call, table: str, tmp_path: Path, rows: str, settings: list[str], words: str
) -> None:
    (tmp_path / "other.csv").write_text("b,c\n1,2\n")
    names = {"table": table, "other": tmp_path / "other.csv", "gone": tmp_path / "gone.csv"}
    code, _, err = call("run", table, "--target", "b", "--test", rows.format(**names), *settings, "--dry-run")
    assert code in (2, 4) and words in err


def test_a_dry_run_says_that_it_knows_no_classes(call: Call, table: str) -> None:
    costs = "decision.costs={schlecht={good=5}}"
    code, out, _ = call("run", table, "--target", "b", "--cpu-lanes", "1", "--set", costs, "--dry-run")
    assert code == 0 and "warning: [decision] is checked in the run, which reads the classes" in out


def test_a_dry_run_names_the_files_of_a_folder_that_are_no_data(call: Call, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "0.csv").write_text("a,b\n1,x\n")
    (tmp_path / "t" / "README.md").write_text("words")
    code, out, _ = call("run", str(tmp_path / "t"), "--target", "b", "--cpu-lanes", "1", "--dry-run")
    assert code == 0 and "trees-s7" in out and "README.md" in out


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("data.target", "target"), ("data.ignore", "data.ignore"), ("data.weight", "data.weight"),
        ("split.column", "split.column"), ("data.roles", "data.roles (numeric)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("file", ["flowers.parquet", "flowers.csv"])
def test_a_dry_run_reads_the_header_and_finds_each_column_that_is_named(
    call: Call, table: str, key: str, named: str, file: str
) -> None:
    Path("flowers.csv").write_text("length,kind\n1,x\n2,y\n", encoding="utf-8")
    pq.write_table(pacsv.read_csv("flowers.csv"), "flowers.parquet")
    lists = {"data.ignore": '["kidn"]', "data.roles": '{kidn = "numeric"}'}
    further = ["--set", "split.kind=group"] if key == "split.column" else []
    target = [] if key == "data.target" else ["--target", "kind"]
    code, out, err = call(
        "run", file, *target, *further, "--set", f"{key}={lists.get(key, 'kidn')}", "--dry-run"
    )
    assert (code, out) == (2, "")
    assert err == f"sparkgpu: {named} 'kidn': no such column. Did you mean 'kind'? Columns: length, kind.\n"


@pytest.mark.process
def test_a_full_disk_is_one_line(table: str) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        found = subprocess.run(
            [sys.executable, "-m", "sparkgpu", "run", table, "--target", "b", "--dry-run"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False,
        )  # fmt: skip
    assert found.returncode == 3
    assert found.stderr == (
        "sparkgpu: the disk is full (standard output). Free some space, or choose folders on another disk "
        "with --out and TMPDIR.\n"
    )


def test_the_command_and_the_module_show_help_and_version(call: Call) -> None:
    code, out, err = call()
    assert code == 2 and "run" in out + err and "sparkgpu:" not in err
    code, out, _ = call("run", "--help")
    assert code == 0 and {"--target", "--gpus", "--cpu-lanes", "--set", "--out"} <= set(out.split())
    assert call("run", "-h") == (0, out, "") and call("-h") == call("--help")
    assert "Exit codes: 0 done · 2 configuration · 3 device or environment · 4 data" in " ".join(out.split())
    found = subprocess.run([sys.executable, "-m", "sparkgpu", "--version"], capture_output=True, text=True)
    assert (0, found.stdout, "") == call("--version") == (0, f"{sparkgpu.__version__}\n", "")


def test_every_command_can_answer_programs() -> None:
    from sparkgpu.cli import app

    found, groups = {}, [typer.main.get_group(app)]
    for group in groups:
        for name, command in group.commands.items():
            if isinstance(command, TyperGroup):
                groups.append(command)
            else:
                found[name] = any("--json" in option.opts for option in command.params)
    assert {"run", "status", "loading"} < found.keys()
    assert [name for name, has_json in found.items() if not has_json] == ["schema"]  # it is JSON


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell: str) -> None:
    program = "import sys; sys.argv[0] = 'sparkgpu'; from sparkgpu.cli import main; main()"

    def answer(instruction: str, **words: str) -> str:
        environ = {**os.environ, "_SPARKGPU_COMPLETE": instruction, **words}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30).stdout

    assert "_SPARKGPU_COMPLETE" in answer(f"source_{shell}")
    words = {"COMP_WORDS": "sparkgpu comp", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "sparkgpu comp"}
    found = answer(f"complete_{shell}", _TYPER_COMPLETE_FISH_ACTION="get-args", **words)
    assert "compare" in found and "monitor" not in found
