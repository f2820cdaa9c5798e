"""``sparkgpu advise`` and ``sparkgpu run --advise`` as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.core.rundir.advice import AdviceRecord

Call = Callable[..., tuple[int, str, str]]


def sparkgpu(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparkgpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=290, cwd=cwd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table whose trees train without Java's H2O."""
    random = np.random.default_rng(3)
    numbers_NF = random.normal(size=(1_000, 4))
    columns = {f"x{place}": numbers_NF[:, place] for place in range(4)}
    kind_N = np.where(numbers_NF[:, 0] + numbers_NF[:, 1] > 0, "tall", "short")
    pq.write_table(pa.table({**columns, "kind": kind_N}), tmp_path / "flowers.parquet")
    return tmp_path


SMALL = (
    "--target", "kind", "--cpu-lanes", "1", "--set", "trees.engine=lightgbm",
    "--set", "neural.hidden=[16]", "--set", "neural.architecture=mlp", "--set", "neural.epochs=12",
    "--set", "report.level=short",
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["advise", "absent.parquet", "--target", "kind"], 4, "absent.parquet: there is no such file"),
        (["advise", "flowers.parquet"], 4, "no target is named"),
        (["advise", "flowers.parquet", "--target", "knd"], 4, "target 'knd': no such column. Did you mean"),
        (["advise", "flowers.parquet", "--target", "kind", "--cpu-lanes", "0"], 2, "does not fit"),
        (["advise", "flowers.parquet", "--target", "kind", "--strategy", "ddp"], 2, "this run has one"),
        (["advise", "flowers.parquet", "--target", "kind", "--cpu-lanes", "9999"], 3, "cores are usable"),
        (["advise", "flowers.parquet", "--target", "kind", "--set", "search=5"], 2, "search: how long"),
        (["advise", "table:a.b", "--target", "kind"], 4, "Spark has to open it"),
        (["run", "flowers.parquet", "--target", "kind", "--advise", "--out", "."], 2, "not an empty folder"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_starts(
    call: Call, folder: Path, arguments: list[str], code: int, message: str
) -> None:
    found, _, err = call(*arguments)
    assert found == code, err
    assert message in err.splitlines()[-1]
    assert [item.name for item in folder.iterdir()] == ["flowers.parquet"]


@pytest.mark.spark
def test_advice_names_a_way_with_time_and_memory_and_leaves_nothing(java: Path, folder: Path) -> None:
    ended = sparkgpu("advise", "flowers.parquet", *SMALL, "--json", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    record = AdviceRecord.model_validate(json.loads(ended.stdout))
    assert (record.rows, record.num_features, record.task, record.lanes) == (1_000, 4, "binary", 1)
    assert record.wall_s > record.ready_s > 0 and record.peak_rss_bytes > 100 * 2**20
    assert [one.name for one in record.options if one.standing == "chosen"] == ["single"]
    assert [item.name for item in folder.iterdir()] == ["flowers.parquet"]


@pytest.mark.spark
def test_a_run_that_is_predicted_keeps_the_prediction_and_reports_it(java: Path, folder: Path) -> None:
    ended = sparkgpu("run", "flowers.parquet", *SMALL, "--advise", "--out", "here", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    assert "predicted: about" in ended.stdout
    record = AdviceRecord.model_validate_json((folder / "here" / "advice.json").read_text())
    assert record.task == "binary"
    assert "measured over predicted" in (folder / "here" / "report" / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.spark
def test_advice_that_fails_is_a_sentence_in_the_report_and_the_run_goes_on(java: Path, folder: Path) -> None:
    ended = sparkgpu(
        "run", "flowers.parquet", *SMALL, "--set", 'models=["trees"]', "--search", "2", "--advise",
        "--out", "here", cwd=folder,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = "no prediction of this run: search: how long it takes depends on what it tries"
    assert said in ended.stdout and not (folder / "here" / "advice.json").exists()
    assert said[1:] in (folder / "here" / "report" / "report.md").read_text()
