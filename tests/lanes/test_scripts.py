"""Batch scripts as written, and the faults that the check finds after changes; no cluster needed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.errors import ConfigError
from sparkgpu.lanes.slurm.check import mismatches
from sparkgpu.lanes.slurm.script_writer import NodeShape, write_scripts

Call = Callable[..., tuple[int, str, str]]

GPUS = NodeShape(gpus_per_node=4, ranks_per_node=4)


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide Slurm's commands; other tests ask a real Slurm."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def config(*assignments: str) -> RunConfig:
    return config_io.load(assignments=("cluster.nodes=2", "slurm.time=04:00:00", *assignments))


def written(tmp_path: Path, name: str = "network", *assignments: str, shape: NodeShape = GPUS) -> Path:
    """One script of those for two nodes."""
    files = {file.stem: file for file in write_scripts(config(*assignments), shape, tmp_path / "jobs")}
    return files[name]


def changed(file: Path, old: str, new: str) -> Path:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return file


@pytest.mark.parametrize("shape", [GPUS, NodeShape(gpus_per_node=0, ranks_per_node=2)])
def test_every_written_script_fits_and_is_valid_shell(tmp_path: Path, shape: NodeShape) -> None:
    asked = config("slurm.cpus_per_node=16", 'slurm.modules=["cuda/12.4", "gcc"]', "cluster.interface=ib0")
    files = write_scripts(asked, shape, tmp_path / "jobs")
    assert [file.name for file in files] == ["lanes.sbatch", "trees-cpu.sbatch", "network.sbatch"]
    for file in files:
        assert mismatches(file) == []
        subprocess.run(["/bin/bash", "-n", file], check=True)


def test_a_script_that_was_changed_is_not_written_over(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert written(tmp_path) == file  # an unchanged script may be written again
    changed(file, "#SBATCH --requeue", "#SBATCH --requeue --mail-type=END")
    with pytest.raises(
        ConfigError, match=r"network\.sbatch there has other content, perhaps your own changes"
    ):
        written(tmp_path)


def test_one_node_needs_no_network_script_and_trees_can_have_a_partition_of_their_own(tmp_path: Path) -> None:
    asked = config_io.load(assignments=("slurm.partition=gpu", "slurm.cpu_partition=cpu"))
    lanes, trees = write_scripts(asked, GPUS, tmp_path)
    assert (lanes.name, trees.name) == ("lanes.sbatch", "trees-cpu.sbatch")
    assert "#SBATCH --partition=gpu" in lanes.read_text()
    assert "#SBATCH --partition=cpu" in trees.read_text()


def test_a_script_holds_what_the_configuration_says_of_the_cluster(tmp_path: Path) -> None:
    file = written(
        tmp_path, "network", "cluster.interface=ib0", "cluster.infiniband=false", "cluster.p2p_level=NVL",
        "slurm.partition=gpu", "slurm.account=physics", 'slurm.modules=["cuda/12.4"]',
        'slurm.setup=["source /project/env/activate.sh"]',
    )  # fmt: skip
    lines = file.read_text().splitlines()
    for line in (
        "#SBATCH --partition=gpu", "#SBATCH --account=physics", "#SBATCH --time=04:00:00",
        "#SBATCH --nodes=2", "#SBATCH --gpus-per-node=4", "#SBATCH --exclusive", "#SBATCH --requeue",
        "#SBATCH --signal=B:USR1@180", "module load cuda/12.4", "source /project/env/activate.sh",
        "export NCCL_SOCKET_IFNAME=ib0", "export GLOO_SOCKET_IFNAME=ib0", "export NCCL_IB_DISABLE=1",
        "export NCCL_P2P_LEVEL=NVL",
    ):  # fmt: skip
        assert line in lines


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("#SBATCH --nodes=2", "#SBATCH -N 3", "#SBATCH --nodes=3, but the run has cluster.nodes = 2;"),
        ("--nnodes=2", "--nnodes=4", "torchrun --nnodes=4, but the run has cluster.nodes = 2;"),
        ("srun --nodes=2", "srun --nodes=1", "srun --nodes=1, but the run has cluster.nodes = 2;"),
        ("#SBATCH --ntasks-per-node=1", "#SBATCH --ntasks-per-node=4", "#SBATCH --ntasks-per-node=4, but"),
        ("--nproc-per-node=4", "--nproc-per-node=8", "--nproc-per-node=8, but the run has 4 GPUs on a node;"),
        ("#SBATCH --gpus-per-node=4", "#SBATCH --gres=gpu:h100:2", "but the run has 2 GPUs on a node;"),
        ("#SBATCH --signal=B:USR1@180\n", "", "#SBATCH --requeue without --signal: the time limit would end"),
        ("B:USR1@180", "USR1@180", "#SBATCH --signal=USR1@180: only B:USR1@SECONDS reaches the script;"),
        ("=04:00:00", "=2", "#SBATCH --time=2 is shorter than its notice of 180 s;"),
        ("=04:00:00", "=0-0:02", "#SBATCH --time=0-0:02 is shorter than its notice of 180 s;"),
        ("--gpus all", "--gpus all --strategy single", 'strategy = "single" stays within one process,'),
        (
            "--gpus all", "--gpus all --set neural.model_parallel=3 --strategy dp_tp",
            "needs a multiple of neural.model_parallel = 3",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_in_a_network_script_is_said(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    file = changed(written(tmp_path, "network", "slurm.partition=gpu"), old, new)
    assert any(sentence in found for found in mismatches(file)), mismatches(file)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("#SBATCH --nodes=1", "#SBATCH --nodes=2", "#SBATCH --nodes=2, but the run has cluster.nodes = 1;"),
        ("#SBATCH --gpus-per-node=4\n", "", "#SBATCH asks for 0 GPUs on a node, but the run uses 1 GPU;"),
        ("--gpus all", "--gpus 0,1", "#SBATCH asks for 4 GPUs on a node, but the run uses 2 GPUs;"),
        ("--gpus all", "--cpu-lanes 2", "#SBATCH asks for 4 GPUs on a node, but the run uses 0 GPUs;"),
        ("--set cluster.nodes=1 --strategy auto", "", "the script exports no SPARKGPU_LAUNCHER"),
    ],
)
def test_what_does_not_fit_in_a_script_for_lanes_is_said(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    file = changed(written(tmp_path, "lanes"), old, new)
    assert any(sentence in found for found in mismatches(file)), mismatches(file)


def test_a_file_that_starts_no_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.sbatch"
    file.write_text("#!/bin/bash\nhostname\n")
    with pytest.raises(ConfigError, match="no line in it starts"):
        mismatches(file)


def test_more_ranks_than_gpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="each rank uses one of a node's 2 GPUs"):
        write_scripts(config(), NodeShape(gpus_per_node=2, ranks_per_node=4), tmp_path)


def test_the_command_ends_with_two_when_something_does_not_fit(tmp_path: Path, call: Call) -> None:
    file = changed(written(tmp_path), "--nnodes=2", "--nnodes=3")
    code, out, _ = call("slurm", "check", file)
    assert code == 2 and "torchrun --nnodes=3" in out
    code, out, _ = call("slurm", "check", file, "--json")
    (faults,) = json.loads(out).items()
    assert code == 2 and faults[0] == str(file) and "torchrun --nnodes=3" in faults[1][0]
    code, _, err = call("slurm", "submit", file)
    assert code == 2 and "sparkgpu slurm check" in err


def test_programs_learn_which_jobs_there_are_and_how_they_are(tmp_path: Path, call: Call) -> None:
    said = "JobId=7 JobName=sparkgpu-lanes JobState=RUNNING RunTime=00:01:00 Restarts=0 ExitCode=0:0"
    for name, answer in {"sbatch": "7;here", "scontrol": said}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\necho '{answer}'\n")
        (tmp_path / "bin" / name).chmod(0o755)
    whole = written(tmp_path, "lanes")
    code, out, _ = call("slurm", "submit", whole, "--json")
    assert (code, json.loads(out)) == (0, {str(whole): "7"})
    code, out, _ = call("slurm", "status", "7", "--json")
    assert code == 0 and json.loads(out)[0]["JobState"] == "RUNNING"
    assert call("slurm", "status", "7")[1] == "7 sparkgpu-lanes: RUNNING, 00:01:00; log \n"


def test_where_slurm_is_not_the_refusal_names_a_login_node(call: Call) -> None:
    code, _, err = call("slurm", "status")
    assert code == 3
    assert "squeue: not found here. Run this on a login node, where Slurm's commands are" in err
