"""The other door to the same run: spark-submit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from running import REPOSITORY, SMALL, finished, write_table
from standalone import spark_environment

pytestmark = pytest.mark.spark


def submit(*arguments: object) -> list[str]:
    program = str(Path(sys.executable).with_name("spark-submit"))
    return [program, str(REPOSITORY / "jobs" / "train.py"), *map(str, arguments)]


@pytest.mark.slow
def test_spark_submit_carries_out_the_same_run(tmp_path: Path) -> None:
    table = write_table("breast_cancer", tmp_path)
    run = finished(
        submit(table, "--target", "target", "--cpu-lanes", "1", *SMALL),
        tmp_path / "out", tmp_path, environ=spark_environment(),
    )  # fmt: skip
    assert {trial["status"] for trial in run.metrics["trials"]} == {"done"}
    trees = next(model for model in run.metrics["models"] if model["name"] == "trees")
    assert trees["metrics"]["test"]["roc_auc"] > 0.95
    assert {address for address, _ in run.seen.listeners} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert run.left_behind() == []
    assert "Exception" not in run.stdout + run.stderr


def test_spark_submit_hands_on_a_refusal_and_its_exit_code(tmp_path: Path) -> None:
    home = {"SPARK_SUBMIT_OPTS": f"-Duser.home={tmp_path}"}  # Java finds none for a user without an account
    run = finished(
        submit("absent.parquet", "--target", "target"),
        tmp_path / "out", tmp_path, code=4, within_s=60, environ=spark_environment() | home,
    )  # fmt: skip
    assert run.stdout == (  # Spark hands on both streams of the program as its own standard output
        "sparkgpu: absent.parquet: there is no such file. "
        "Give Parquet, CSV (plain or .gz/.bz2), ORC, JSON lines, or table:NAME.\n"
    )
    assert run.stderr == ""
