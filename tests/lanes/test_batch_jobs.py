"""Generated scripts on a real Slurm of two virtual nodes: same weights, requeue and resume, failures."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from virtual_cluster import Cluster

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import read_schema
from sparkgpu.neural.launchers.heartbeat import read_sign
from sparkgpu.neural.launchers.local import train_locally
from sparkgpu.trials.engine import Trial

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

Command = Callable[..., str]

SMALL = (
    "--set", "trees.engine=lightgbm", "--set", "trees.ntrees=5", "--set", "neural.architecture=mlp",
    "--set", "neural.hidden=[16]", "--set", "neural.patience=0", "--set", "cluster.interface=lo",
)  # fmt: skip
TWO_BY_TWO = ("--nodes", "2", "--gpus-per-node", "0", "--ranks-per-node", "2", "--cpus-per-node", "2")


def training(job: RunPaths) -> list[int]:
    """The processes of the ranks, after all four have taken some steps."""
    folder = job.trial("neural-s7").gang / "attempt-0"
    signs = [sign for rank in range(4) if (sign := read_sign(folder, rank)) is not None]
    if len(signs) == 4 and all(sign.is_training and sign.beats > 20 for sign in signs):
        return [sign.process for sign in signs]
    return []


def network_job(
    sparkgpu: Command, rows: Path, folder: Path, setup: list[str], *settings: str
) -> tuple[str, RunPaths]:
    """Write, check and submit the script for one network on two nodes; the job and its run directory."""
    sparkgpu("slurm", "write", rows, "--target", "y", *TWO_BY_TWO, *SMALL, *settings, *setup, "--out", folder)
    assert "fits" in sparkgpu("slurm", "check", folder / "network.sbatch")
    number = sparkgpu("slurm", "submit", folder / "network.sbatch").strip()
    return number, RunPaths(root=folder / "runs" / f"network-{number}")


def weights(run: RunPaths) -> dict[str, torch.Tensor]:
    file = run.trial("neural-s7").root / "model.safetensors"
    found: dict[str, torch.Tensor] = load_file(file)
    return found


def trained_here(run: RunPaths, folder: Path) -> RunPaths:
    """The network of a run, trained again with ddp by four ranks of one local gang on the same table."""
    shutil.copytree(run.table, folder / "table")
    local, plan = RunPaths(root=folder), Plan.model_validate(read_json(run.plan))
    lanes = tuple(plan.lanes[0].model_copy(update={"index": index}) for index in range(4))
    (spec,) = (trial for trial in plan.trials if trial.model == "neural")
    spec = spec.model_copy(update={"gang": (0, 1, 2, 3), "nodes": 1})
    write_json(local.plan, plan.model_copy(update={"lanes": lanes, "trials": (spec,)}))
    lane = local.lane(0)
    events = EventWriter(lane.events("neural"), lane.phases("neural"))
    schema = read_schema(local)
    resolved = plan.resolved(config_io.load(file=run.config), TableSize.of(schema))
    train_locally(
        Trial(
            spec=spec, parameters=resolved.neural, schema=schema, run=local, lane=lanes[0], events=events,
            scratch=folder,
        )
    )  # fmt: skip
    return local


def test_a_job_on_two_nodes_trains_the_weights_of_four_local_ranks(
    cluster: Cluster, sparkgpu: Command, rows: Path, setup: list[str], tmp_path: Path
) -> None:
    number, run = network_job(sparkgpu, rows, tmp_path / "jobs", setup, "--set", "neural.epochs=3")
    assert cluster.wait(number, 150) == "COMPLETED"
    plan = Plan.model_validate(read_json(run.plan))
    assert plan.reasons["strategy"] == (
        "ddp: one network on 4 devices of 2 machines, each with a part of a batch"
    )
    found, expected = weights(run), weights(trained_here(run, tmp_path / "local"))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-5, rtol=0)
    line = sparkgpu("slurm", "status", number).strip()
    log = tmp_path / "jobs" / "logs" / f"sparkgpu-network-{number}.log"
    assert re.fullmatch(
        rf"{number} sparkgpu-network: COMPLETED on n\[1-2\], [\d:]+, exit code 0; log {log}", line
    )


LONG = ("--set", "neural.epochs=6", "--set", "neural.batch_size=8")


@pytest.mark.slow
def test_a_job_given_notice_saves_is_requeued_and_goes_on(
    cluster: Cluster, sparkgpu: Command, rows: Path, setup: list[str], tmp_path: Path
) -> None:
    number, run = network_job(sparkgpu, rows, tmp_path / "jobs", setup, *LONG)
    cluster.wait(number, 120, until=lambda job: bool(training(run)))
    # The same signal as Slurm sends before the time limit.
    cluster.ask("scancel", "--batch", "--signal=USR1", number)
    cluster.wait(number, 60, until=lambda job: job["Restarts"] == "1")
    assert cluster.wait(number, 150) == "COMPLETED"
    fit = read_json(run.trial("neural-s7").fit)
    assert fit["notes"][0].startswith("resumed from a checkpoint after epoch ")
    assert fit["device_proof"]["num_ranks"] == 4


@pytest.mark.slow
def test_a_rank_that_is_lost_fails_the_job_and_is_named_in_its_log(
    cluster: Cluster, sparkgpu: Command, rows: Path, setup: list[str], tmp_path: Path
) -> None:
    settings = (*LONG, "--set", "neural.max_restarts=0")
    number, run = network_job(sparkgpu, rows, tmp_path / "jobs", setup, *settings)
    cluster.wait(number, 120, until=lambda job: bool(training(run)))
    os.kill(training(run)[2], signal.SIGKILL)
    assert cluster.wait(number, 60) == "FAILED"
    job = cluster.job(number)
    assert job["ExitCode"] == "5:0"
    assert "neural-s7 failed: neural-s7: rank 2 of 4 was killed" in Path(job["StdOut"]).read_text()


@pytest.mark.slow
def test_the_scripts_for_lanes_and_for_trees_on_all_cores_run(
    cluster: Cluster, sparkgpu: Command, rows: Path, setup: list[str], tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs"
    sparkgpu(
        "slurm", "write", rows, "--target", "y", "--gpus-per-node", "0", *SMALL,
        "--set", "neural.epochs=2", *setup, "--out", jobs,
    )  # fmt: skip
    numbers = sparkgpu("slurm", "submit", jobs / "lanes.sbatch", jobs / "trees-cpu.sbatch").split()
    lanes, trees = numbers
    assert cluster.wait(lanes, 120) == cluster.wait(trees, 120) == "COMPLETED"
    found = read_json(RunPaths(root=jobs / "runs" / f"trees-cpu-{trees}").metrics)
    assert [(model["name"], model["status"]) for model in found["models"]] == [
        ("trees", "done"), ("neural", "left out"),
    ]  # fmt: skip
    found = read_json(RunPaths(root=jobs / "runs" / f"lanes-{lanes}").metrics)
    assert [model["name"] for model in found["models"]] == ["trees", "neural", "blend"]


def test_slurm_itself_is_asked_whether_it_would_take_a_job(
    cluster: Cluster, sparkgpu: Command, rows: Path, setup: list[str], tmp_path: Path
) -> None:
    write = ("slurm", "write", rows, "--target", "y", "--nodes", "2", "--cpus-per-node", "4", *setup)
    sparkgpu(*write, "--gpus-per-node", "2", "--out", tmp_path / "two")
    assert sparkgpu("slurm", "check", tmp_path / "two" / "network.sbatch").endswith("fits\n")
    with pytest.raises(AssertionError, match=r"Slurm would refuse the job: .*node configuration"):
        sparkgpu(*write, "--gpus-per-node", "3", "--out", tmp_path / "three")
