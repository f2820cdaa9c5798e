"""Folders of runs that earlier versions left can be read, predicted with, reported and compared."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import sparkgpu
from sparkgpu.core.config import toml
from sparkgpu.core.errors import ConfigError

Call = Callable[..., tuple[int, str, str]]

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(params=sorted(folder.name for folder in GOLDEN.iterdir()))
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run of 240 rows with numbers, texts, booleans and timestamps, as that version left it."""
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / "run"))


def test_its_configuration_is_read_and_a_value_that_is_gone_is_refused(earlier: Path) -> None:
    file = earlier / "run.toml"
    assert toml.load(file=file).neural.data == "auto"
    file.write_text(file.read_text().replace('data = "auto"', 'data = "dataloader"'))
    with pytest.raises(ConfigError, match=r"neural.data.*input should be 'auto', 'resident' or 'stream'"):
        toml.load(file=file)


def test_its_results_are_read(earlier: Path) -> None:
    found = sparkgpu.read_run(earlier)
    assert set(found.leaderboard()["model"]) == {"trees", "neural", "blend"}
    assert found.metrics["comparison"]["metric"] == "roc_auc"
    assert len(found.predictions("trees")) == found.metrics["data"]["splits"]["test"]


@pytest.mark.parametrize("model", ["trees", "neural", "blend"])
def test_its_models_predict_what_they_predicted(earlier: Path, model: str) -> None:
    before = sparkgpu.read_run(earlier).predictions(model)
    rows = pq.read_table(earlier / "small.parquet").take(before["row_id"].to_numpy())
    now = sparkgpu.load(earlier, model).predict_proba(rows.to_pandas())
    np.testing.assert_allclose(now[:, 1], before["probability_yes"], atol=1e-6)


@pytest.mark.parametrize("own_test_rows", [False, True])
def test_the_rows_of_the_run_are_recognised_in_any_format(
    earlier: Path, tmp_path: Path, call: Call, own_test_rows: bool
) -> None:
    found = json.loads((earlier / "table/schema.json").read_text())
    rows = found["rows"] + found["rows_refused"]
    if own_test_rows:
        rows -= 20
        found["held_out"] = {"test": {"table": "test.csv", "first": rows}}
        (earlier / "table/schema.json").write_text(json.dumps(found))
    lines = "x,kind,owns,when\n" + "1,a,true,2024-01-01\n" * rows
    (tmp_path / Path(found["source"]).with_suffix(".csv").name).write_text(lines)
    (tmp_path / "other.csv").write_text(lines)
    for name, same in ((Path(found["source"]).with_suffix(".csv").name, True), ("other.csv", False)):
        _, out, _ = call("predict", earlier, tmp_path / name, "--out", tmp_path / f"of-{name}")
        assert ("the table of the run" in out) == same


def test_it_is_reported_and_compared(earlier: Path, call: Call) -> None:
    other = shutil.copytree(earlier, earlier.with_name("other"))
    metrics = json.loads((other / "metrics.json").read_text(encoding="utf-8"))
    metrics["run"]["wall_s"] += 1.0  # equal ones would be one run named twice
    (other / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    page = earlier / "comparison.html"
    for arguments in (["report", earlier], ["compare", earlier, other, "--out", page]):
        code, _, err = call(*arguments)
        assert code == 0, err
    assert "trees" in (earlier / "report" / "report.md").read_text(encoding="utf-8")


def test_a_run_whose_metric_is_of_a_missing_package_is_named_with_it(earlier: Path, call: Call) -> None:
    file = earlier / "metrics.json"
    primary = json.loads(file.read_text(encoding="utf-8"))["comparison"]["metric"]
    file.write_text(file.read_text(encoding="utf-8").replace(primary, "toy-cost"), encoding="utf-8")
    said = (
        f"sparkgpu: {earlier}: its metric 'toy-cost' is of a package that is not installed here. Install the "
        "one with the entry point 'toy-cost' in sparkgpu.metrics.\n"
    )
    assert call("report", earlier)[::2] == (2, said)
    assert call("monitor", earlier)[::2] == (2, said)
    with pytest.raises(ConfigError, match="its metric 'toy-cost' is of a package that is not installed here"):
        sparkgpu.read_run(earlier)
    assert call("compare", earlier, GOLDEN / earlier.name, "--out", earlier / "x.html")[::2] == (2, said)


def test_the_package_shows_its_names_before_their_first_use() -> None:
    program = "import sparkgpu; print({'run', 'load', 'read_run'} <= set(dir(sparkgpu)))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "True\n"


@pytest.mark.parametrize("command", [("report",), ("predict", "x.csv", "--out", "y.csv")])
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("metrics.json", '"name": "trees"', '"name": "../../x"'),
        ("metrics.json", '"name": "trees-s7"', '"name": "/tmp/x"'),
        ("metrics.json", '"comparison"', "\xff"),
        ("table/schema.json", '"features": [', '"features": {'),
    ],
)
def test_a_damaged_or_planted_record_is_said_and_nothing_is_written_elsewhere(
    earlier: Path, call: Call, command: tuple[str, ...], file: str, old: str, new: str
) -> None:
    Path("x.csv").write_text("x,kind,owns,when\n1,a,true,2024-01-01\n")
    text = (earlier / file).read_text()
    assert old in text
    (earlier / file).write_bytes(text.replace(old, new, 1).encode("latin-1"))
    code, _, err = call(command[0], earlier, *command[1:])
    if command[0] == "predict":
        assert code == 2
        assert err.startswith(f"sparkgpu: {earlier / file}: ") and err.count("\n") == 1
    else:  # the page says which file cannot be read
        assert file in (earlier / "report" / "report.md").read_text()
    assert sorted(path.name for path in Path().iterdir()) == ["run", "x.csv"]
