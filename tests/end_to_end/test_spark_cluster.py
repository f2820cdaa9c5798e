"""Runs through spark-submit on a two-worker cluster: the work of executors, and the loss of one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
import tomli_w
from running import (
    COMMAND,
    Running,
    finished,
    started,
    that_decides,
    until,
    write_adult,
    write_table,
)
from standalone import Cluster, spark_environment, standalone

import sparkgpu
from sparkgpu.core.config.registry.engines import Branch
from sparkgpu.core.rundir.events import EventReader
from sparkgpu.core.rundir.files import read_json, write_json

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CANARY = "canary-Zx93kq"
SECRETS = {
    "spark.hadoop.fs.s3a.secret.key": "S3_SECRET",
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": "LAKE",
    "spark.executorEnv.HF_TOKEN": "TOKEN",
    "spark.ssl.keyPassword": "KEY",
}
NETWORK = (
    "--set", "neural.epochs=3", "--set", "neural.architecture=mlp", "--set", "neural.hidden=[32]",
)  # fmt: skip


@dataclass(kw_only=True)
class Whole:
    """A run over both workers, its executors' folders, and all command lines of this machine meanwhile."""

    run: Running
    table: Path
    cluster: Cluster
    executors: set[Path]
    commands: set[str]


@pytest.fixture(scope="module")
def whole(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Trees, a network and what has one executor, on a real table that is large enough for two ranks."""
    folder, before = tmp_path_factory.mktemp("whole"), cluster.applications()
    table, target, _ = write_adult(folder)
    secrets = {key: f"${{{name}}}" for key, name in SECRETS.items()}
    log = {"spark.eventLog.enabled": True, "spark.eventLog.dir": (folder / "events").as_uri()}
    (folder / "events").mkdir()
    (folder / "asked.toml").write_text(tomli_w.dumps({"cluster": {"spark": secrets | log}}))
    command = cluster.submit(
        table, "--target", target, *NETWORK, "--set", "neural.epochs=1", "--set", "trees.ntrees=20",
        "--set", "cluster.executors=2", "--set", "report.level=short", "--config", folder / "asked.toml",
        "--also", "lightgbm", "--time-limit", "9m", "--repeats", "1", "--intervals", ".9",
    )  # fmt: skip
    environ = spark_environment() | {name: CANARY + name for name in SECRETS.values()}
    commands: set[str] = set()
    with started(command, folder / "out", folder, environ) as run:
        while run.process.poll() is None:
            commands |= {" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])}
            time.sleep(0.5)
        assert run.wait(1) == 0, run.stdout + run.stderr
    executors = cluster.applications() - before
    return Whole(run=run, table=table, cluster=cluster, executors=executors, commands=commands)


def test_every_worker_held_a_rank_of_the_trees_and_of_the_network(whole: Whole) -> None:
    plan = read_json(whole.run.paths.plan)
    assert plan["master"] == whole.cluster.url
    assert [lane["device_name"] for lane in plan["lanes"]] == [
        "executor 0 on 127.0.0.1", "executor 1 on 127.0.0.1",
    ]  # fmt: skip
    for name in ("trees-s7", "neural-s7"):
        places = [
            re.search(r"^rank \d on \S+, in (\S+), GPUs none", file.read_text())
            for file in whole.run.paths.trial(name).rank_logs.iterdir()
        ]
        # An executor works in a folder of its application in the worker's folder.
        assert {Path(place.group(1)).parent for place in places if place} == whole.executors
    assert {folder.parents[1].name for folder in whole.executors} == {"worker-0", "worker-1"}
    trees = next(trial for trial in whole.run.metrics["trials"] if trial["model"] == "trees")
    assert trees["engine"] == "xgboost" and trees["device_proof"]["num_ranks"] == 2


def test_a_cluster_knows_further_models_a_time_limit_and_intervals(whole: Whole) -> None:
    found = whole.run.metrics
    models = {model["name"]: model["metrics"]["test"] for model in found["models"]}
    assert models.keys() == {"trees", "neural", "lightgbm", "blend"}
    assert min(models["trees"]["roc_auc"], models["lightgbm"]["roc_auc"]) > 0.65
    plan = read_json(whole.run.paths.plan)
    assert plan["reasons"]["lightgbm"] == "on one executor: lightgbm cannot be spread over several"
    assert len(list(whole.run.paths.trial("lightgbm-s7").rank_logs.iterdir())) == 1
    assert plan["time_limit"] == 540.0 and found["run"]["wall_s"] < 540
    asked = [model["intervals"]["fitted"]["coverage"] for model in found["models"] if model["intervals"]]
    assert asked == [0.9] * len(asked) and len(asked) >= 3
    kinds = [event.kind for event in EventReader(whole.run.paths.lane(0).events("trees")).new()]
    assert "alive" in kinds


def test_a_secret_is_in_no_file_log_event_page_or_command_line(
    whole: Whole, tmp_path: Path, call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = whole.run.paths.root
    assert stat.S_IMODE((out / "run.toml").stat().st_mode) == 0o600
    assert '"${S3_SECRET}"' in (out / "run.toml").read_text()
    for name in SECRETS.values():
        monkeypatch.setenv(name, CANARY + name)
    other = shutil.copytree(out, tmp_path / "other")
    metrics = read_json(other / "metrics.json")
    write_json(other / "metrics.json", {**metrics, "run": {**metrics["run"], "name": "other"}})
    said = [
        call("compare", out, other, "--out", tmp_path / "compare.html"),
        call("predict", out, whole.table, "--out", tmp_path / "predicted.csv"),
        call("report", other),
    ]
    assert [code for code, _, _ in said] == [0, 0, 0], said
    assert any("PythonGatewayServer" in line for line in whole.commands)
    assert any("CoarseGrainedExecutorBackend" in line for line in whole.commands)
    assert [line for line in whole.commands if CANARY in line] == []
    assert CANARY not in str(said)
    written = [file for root in (out.parent, tmp_path, whole.cluster.folder) for file in root.rglob("*")]
    assert {"compare.html", "predicted.csv", "lane.log", "worker-0.log"} <= {file.name for file in written}
    assert list((out.parent / "events").iterdir())
    for file in written:
        assert not file.is_file() or CANARY.encode() not in file.read_bytes(), file


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["trees", "neural"])
def test_a_killed_worker_costs_a_second_start_and_no_finished_trial(tmp_path: Path, branch: Branch) -> None:
    table = write_table("breast_cancer", tmp_path)
    lengths = {"trees": ("trees.ntrees=30000",), "neural": ("trees.ntrees=20", "neural.epochs=400")}
    more = ("trees.early_stopping_rounds=0", "neural.patience=0", "neural.checkpoint_minutes=1e-6")
    settings = [part for one in (*lengths[branch], *more) for part in ("--set", one)]
    both = ("--set", "cluster.executors=2")  # on a busy machine the second comes late
    with standalone(tmp_path) as cluster:
        command = cluster.submit(table, "--target", "target", *NETWORK, *settings, *both)
        with started(command, tmp_path / "out", tmp_path, spark_environment()) as run:
            trees = run.paths.trial("trees-s7")
            events = EventReader(run.paths.lane(0).events(branch))
            until(
                lambda: any(event.kind == "progress" for event in events.new()), "progress", 400, run.process
            )
            before = trees.done.stat().st_mtime if trees.done.exists() else None
            assert (before is None) == (branch == "trees")
            cluster.kill_worker(0)
            assert run.wait(400) == 0, run.stdout + run.stderr
    assert {trial["status"] for trial in run.metrics["trials"]} == {"done"}
    assert before is None or trees.done.stat().st_mtime == before
    assert re.search(r"executor \d on 127.0.0.1 was lost, one of 2 executors; once more", run.stdout)
    found = next(model for model in run.metrics["models"] if model["name"] == "trees")
    assert found["metrics"]["test"]["roc_auc"] > 0.95
    assert len(run.metrics["comparison"]["pairs"]) == 3


def test_a_job_predicts_a_table_on_two_workers(whole: Whole, tmp_path: Path) -> None:
    before, out, run = whole.cluster.applications(), tmp_path / "found", tmp_path / "run"
    _, words = that_decides(whole.run.paths.root, run)
    command = whole.cluster.submit(run, whole.table, "--out", out, "--model", "neural", job="predict.py")
    ended = subprocess.run(
        command, check=False, timeout=150, env=spark_environment(), capture_output=True, text=True
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert f"sparkgpu: note: {words}, " in said
    assert "sparkgpu: note: this job gives no metrics; `sparkgpu predict` does, of files\n" in said
    executors = whole.cluster.applications() - before
    assert {folder.parents[1].name for folder in executors} == {"worker-0", "worker-1"}
    found = pq.read_table(out).to_pandas()
    expected = sparkgpu.load(run, "neural").predict_proba(found)
    np.testing.assert_allclose(found.filter(like="probability"), expected, atol=1e-9)


@pytest.mark.slow
def test_a_run_of_executors_is_refitted_on_this_machine(whole: Whole, tmp_path: Path) -> None:
    out = tmp_path / "refitted"
    command = [*COMMAND, "refit", whole.run.paths.root, "--out", out]
    ended = subprocess.run([*map(str, command)], check=False, timeout=400, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {model["name"] for model in read_json(out / "metrics.json")["models"]} >= {"trees", "neural"}
    assert (out / "trials" / "trees-s7" / "model.ubj").exists()


def test_the_run_directory_is_that_of_any_run(whole: Whole) -> None:
    names = {path.name for path in whole.run.paths.root.iterdir()}
    assert names == {
        "run.toml", "run.schema.json", "plan.json", "env.json", "table", "pipeline", "lanes", "trials",
        "telemetry.csv", "metrics.json", "report",
    }  # fmt: skip
    assert (whole.run.paths.trial("trees-s7").root / "model.ubj").exists()


def test_nothing_of_it_is_left_and_nothing_listened_beyond_this_machine(whole: Whole) -> None:
    # What executors open to each other is the cluster's affair (SECURITY.md); they are not below the command.
    assert {address for address, _ in whole.run.seen.listeners} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert whole.run.left_behind() == []
    until(lambda: whole.cluster.executors() == [], "the executors have gone", 60)


def test_a_master_that_is_not_there_is_said_within_seconds(tmp_path: Path) -> None:
    table = write_table("wine", tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{free.getsockname()[1]}"  # bound, but nobody listens
        run = finished(
            [*COMMAND, "run", table, "--target", "target", "--set", f"cluster.master={master}"],
            tmp_path / "out", tmp_path, code=3, within_s=30,
        )  # fmt: skip
    assert run.stderr.startswith(f"sparkgpu: no Spark master answers at {master} (")
    assert not run.paths.root.exists()


def on(cluster: Cluster, folder: Path, *arguments: object) -> Running:
    """The run of these arguments on the cluster, after its end."""
    command = cluster.submit(*arguments)
    return finished(command, folder / "out", folder, within_s=350, environ=spark_environment())


@pytest.mark.slow
def test_the_flights_come_out_as_on_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    on_cluster = on(cluster, tmp_path)
    alone = finished([*COMMAND, "run", "--cpu-lanes", "1"], tmp_path / "alone", tmp_path, within_s=350)
    for one, other in zip(on_cluster.metrics["models"], alone.metrics["models"], strict=True):
        assert one["name"] == other["name"]
        assert abs(one["metrics"]["test"]["roc_auc"] - other["metrics"]["test"]["roc_auc"]) < 0.005


@pytest.mark.slow
def test_each_executor_can_be_a_lane_whose_crashed_worker_is_started_once_more(
    cluster: Cluster, tmp_path: Path
) -> None:
    table = write_table("breast_cancer", tmp_path)
    lanes = ("--set", "cluster.lanes=executors", "--set", "split.folds=3", "--set", "trees.ntrees=20")
    command = cluster.submit(table, "--target", "target", *NETWORK, *lanes)
    with started(command, tmp_path / "out", tmp_path, spark_environment()) as run:
        run.wait_for_phase("starting Spark", 1, "trees", 200)
        worker_of(run.paths.root, 1, "trees").send_signal(signal.SIGSEGV)
        assert run.wait(350) == 0, run.stdout + run.stderr
    assert "crashed with signal 11 while" in run.stdout
    trials = run.metrics["trials"]
    assert {trial["status"] for trial in trials} == {"done"}
    assert sorted(trial["name"] for trial in trials if trial["model"] == "trees") == [
        "trees-s7-f0", "trees-s7-f1", "trees-s7-f2",
    ]  # fmt: skip
    assert {trial["lane"] for trial in trials} == {0, 1}
    assert run.left_behind() == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "metric", "at_least"), [("wine", "accuracy", 0.8), ("diabetes", "r2", 0.2)])
def test_the_xgboost_engine_trains_one_model_over_the_executors(
    cluster: Cluster, name: str, metric: str, at_least: float, tmp_path: Path
) -> None:
    table = write_table(name, tmp_path)
    run = on(cluster, tmp_path, table, "--target", "target", *NETWORK, "--set", "trees.engine=xgboost")
    trees = next(trial for trial in run.metrics["trials"] if trial["model"] == "trees")
    assert trees["device_proof"]["num_ranks"] == 1  # few rows
    assert trees["metrics"]["test"][metric] > at_least
    assert (run.paths.trial(trees["name"]).root / "model.ubj").exists()


@pytest.mark.slow
def test_a_killed_rank_is_named_and_the_network_goes_on_from_its_checkpoint(
    cluster: Cluster, tmp_path: Path
) -> None:
    table = write_table("breast_cancer", tmp_path)
    command = cluster.submit(
        table, "--target", "target", *NETWORK, "--set", "trees.ntrees=20", "--set", "neural.epochs=400",
        "--set", "neural.patience=0", "--set", "neural.checkpoint_minutes=1e-6",
    )  # fmt: skip
    with started(command, tmp_path / "out", tmp_path, spark_environment()) as run:
        run.wait_for_phase("training", 0, "neural", 200)
        trial = run.paths.trial("neural-s7")
        until(lambda: any(trial.checkpoints.glob("epoch-*")), "a checkpoint", 60, run.process)
        rank_of(run.paths.root, 1).kill()
        assert run.wait(200) == 0, run.stdout + run.stderr
    notes = read_json(trial.fit)["notes"]
    assert notes[0].startswith("resumed from a checkpoint after epoch ")
    assert notes[1].startswith(
        "started again from the last checkpoint: rank 1 of 2 was killed (out of memory?)"
    )


def on_executors(run_dir: Path, module: str) -> Iterator[psutil.Process]:
    """The processes of a module that work for a run on executors, which are not children of the run."""
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if module in line and str(run_dir) in line:
            yield process


def rank_of(run_dir: Path, rank: int) -> psutil.Process:
    for process in on_executors(run_dir, "sparkgpu.neural.ranks"):
        with suppress(psutil.Error):
            if process.environ()["RANK"] == str(rank):
                return process
    raise AssertionError(f"no rank {rank}")


def worker_of(run_dir: Path, lane: int, branch: str) -> psutil.Process:
    for process in on_executors(run_dir, "sparkgpu.lanes.worker"):
        if f"--lane {lane} --branch {branch}" in " ".join(process.info["cmdline"]):
            return process
    raise AssertionError(f"no {branch} worker of lane {lane}")


@pytest.mark.slow
@pytest.mark.skipif(bool(os.environ.get("SPARKGPU_REAL_GPUS")), reason="the GPUs declared here do not exist")
def test_a_task_sees_the_gpu_that_spark_gave_it_and_no_other(tmp_path: Path) -> None:
    table = write_table("breast_cancer", tmp_path)
    with standalone(tmp_path, workers=1, cores=2, memory="2400m", gpus=2) as cluster:
        run = finished(
            cluster.submit(
                table, "--target", "target", *NETWORK, "--set", "trees.ntrees=20",
                "--set", "trees.tree_method=hist", "--set", "cluster.lanes=executors",
                conf=[
                    "spark.executor.cores=1", "spark.executor.resource.gpu.amount=1",
                    "spark.task.resource.gpu.amount=1",
                ],
            ),
            tmp_path / "out", tmp_path, code=5, within_s=300, environ=spark_environment(),
        )  # fmt: skip
    # These GPUs do not exist, so the networks refuse; the message shows which GPU each was to use.
    errors = [trial["error"] for trial in run.metrics["trials"] if trial["model"] == "neural"]
    assert len(errors) == 2
    assert {re.search(r"CUDA_VISIBLE_DEVICES=(\d)\)", error).group(1) for error in errors} == {"0", "1"}  # type: ignore[union-attr]
