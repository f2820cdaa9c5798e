"""Trees in an H2O cloud of two executors: rows on every node, small tables, a failure H2O never reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from running import COMMAND, finished, write_table
from standalone import Cluster, spark_environment, standalone

from sparkgpu.core.rundir.events import EventReader
from sparkgpu.core.table.demo import DEMO_TARGET
from sparkgpu.core.table.demo_table import write_demo

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TREES = ("--set", 'models=["trees"]', "--set", "trees.ntrees=20")
# Passes the validation rows in one piece, so one node gets all of them, and does not check where rows are.
# H2O itself would cut more than 1,000 rows again, and fails only with categories.
IN_ONE_PIECE = ("--set", "split.valid=0.03", "--set", 'trees.categorical_encoding="one_hot_internal"')
ONE_PIECE = """
import sys
if "sparkgpu.lanes.cluster.driver" in sys.orig_argv:
    from sparkgpu.h2o import cloud_frames
    write = cloud_frames.write_pieces
    cloud_frames.write_pieces = lambda files, folder, pieces: write(
        files, folder, 1 if folder.name == "pieces-valid" else pieces
    )
    cloud_frames.one_node_note = lambda nodes, reason: None
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with categories and one row group per split, which makes H2O wait forever."""
    folder = tmp_path_factory.mktemp("flights")
    file = folder / "flights.parquet"
    pq.write_table(pq.read_table(write_demo(folder)).slice(0, 30_000), file)
    return file


def on_nodes(trial: dict[str, Any]) -> list[str]:
    """The trial's notes on where it trained."""
    return [note for note in trial["notes"] if "H2O node" in note]


@pytest.mark.parametrize("folds", [None, 3])
def test_every_node_has_rows_of_every_split_and_fold(
    cluster: Cluster, flights: Path, tmp_path: Path, folds: int | None
) -> None:
    options = ("--set", f"split.folds={folds}") if folds else ()
    run = finished(
        cluster.submit(flights, "--target", DEMO_TARGET, *TREES, *options),
        tmp_path / "out", tmp_path, within_s=500, environ=spark_environment(),
    )  # fmt: skip
    trials = run.metrics["trials"]
    assert [trial["status"] for trial in trials] == ["done"] * (folds or 1)
    assert [on_nodes(trial) for trial in trials] == [[]] * len(trials)
    assert all(trial["metrics"]["test"]["roc_auc"] > 0.65 for trial in trials)
    app = max(folder.name for folder in cluster.folder.glob("worker-*/work/app-*"))
    logs = [log.read_text() for log in cluster.folder.glob(f"worker-*/work/{app}/*/h2ologs/*/*info*")]
    assert [text.count("Initial Booster created") for text in logs] == [len(trials)] * 2
    kinds = [event.kind for event in EventReader(run.paths.lane(0).events("trees")).new()]
    assert "alive" in kinds


def test_a_failure_on_one_node_for_which_h2o_waits_forever_ends_the_trial(
    cluster: Cluster, flights: Path, tmp_path: Path
) -> None:
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(ONE_PIECE)
    environment = spark_environment()
    python_path = os.pathsep.join([str(tmp_path / "patch"), environment.get("PYTHONPATH", "")])
    run = finished(
        cluster.submit(flights, "--target", DEMO_TARGET, *TREES, *IN_ONE_PIECE),
        tmp_path / "out", tmp_path, code=5, within_s=500,
        environ={**environment, "PYTHONPATH": python_path},
    )  # fmt: skip
    events = EventReader(run.paths.lane(0).events("trees")).new()
    began = next(event.at for event in events if event.text == "training")
    failed = next(event for event in events if event.kind == "trial_failed")
    assert failed.text.startswith("trees-s7: H2O is stuck: no thread of 127.0.0.1:")
    assert failed.at - began < 100
    assert failed.text in run.stdout
    assert "Traceback" not in run.stdout + run.stderr
    assert run.left_behind() == []


def test_a_small_table_gives_the_model_of_one_lane_and_says_so(cluster: Cluster, tmp_path: Path) -> None:
    table = write_table("wine", tmp_path)
    on_cluster = finished(
        cluster.submit(table, "--target", "target", *TREES),
        tmp_path / "cluster", tmp_path, within_s=500, environ=spark_environment(),
    )  # fmt: skip
    alone = finished(
        [*COMMAND, "run", table, "--target", "target", "--cpu-lanes", "1", *TREES],
        tmp_path / "alone", tmp_path, within_s=300,
    )  # fmt: skip
    (trial,), (other,) = on_cluster.metrics["trials"], alone.metrics["trials"]
    assert trial["metrics"] == other["metrics"]
    rows = on_cluster.metrics["data"]["splits"]["train"]
    assert on_nodes(trial) == [f"trained on one of 2 H2O nodes: {rows} training rows are too few for more"]
