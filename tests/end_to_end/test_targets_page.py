"""What docs/targets.md shows does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from running import COMMAND, REPOSITORY, SMALL

import sparkgpu
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.files import read_json
from sparkgpu.core.rundir.metrics_json import read_results
from sparkgpu.core.rundir.paths import RunPaths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.process]

PAGE = (REPOSITORY / "docs" / "targets.md").read_text(encoding="utf-8")
FEW = (*SMALL[:2], "--set", "trees.engine=xgboost", "--cpu-lanes", "1", "--set", "report.level=short")
NETWORK = (
    "--set",
    "neural.epochs=40",
    "--set",
    "neural.hidden=[32, 32]",
    "--set",
    "neural.learning_rate=0.01",
)
ROWS = 600


def homes() -> pd.DataFrame:
    """A price in some rows and a sale in others; both follow from two columns."""
    random = np.random.default_rng(4)
    area, rooms = random.uniform(20, 200, ROWS), random.integers(1, 6, ROWS)
    price = 3_000 * area + 9_000 * rooms + random.normal(0, 9_000, ROWS)
    sold = np.where(area / 40 - rooms + random.normal(0, 0.3, ROWS) > 0, "yes", "no").astype(object)
    price[::6] = np.nan
    sold[1::9] = None
    return pd.DataFrame({"area": area, "rooms": rooms, "price": price, "sold": sold})


def commands() -> list[list[str]]:
    """The words of the page's commands."""
    (block,) = re.findall(r"```bash\n(.*?)```", PAGE, re.S)
    return [shlex.split(line)[1:] for line in block.splitlines()]


def test_one_run_learns_two_targets_and_its_folders_predict_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = homes()
    frame.to_parquet("homes.parquet")
    frame.drop(columns=["price", "sold"])[:50].to_parquet("new.parquet")
    run, predict = commands()
    told = subprocess.run([*COMMAND, *run, *FEW, *NETWORK], capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    paths = RunPaths(root=tmp_path / "reports" / "homes")
    index = read_json(paths.targets_index)["targets"]
    assert [(one["target"], one["folder"], one["task"]) for one in index] == [
        ("price", "price", "regression"), ("sold", "sold", "binary"),
    ]  # fmt: skip
    price, sold = (read_results(paths.target(name)) for name in ("price", "sold"))
    assert price.data.rows == frame["price"].notna().sum() and sold.data.rows == frame["sold"].notna().sum()
    for results, metric in ((price, "r2"), (sold, "roc_auc")):
        found = {model.name: model.metrics.test[metric] for model in results.models}
        assert set(found) == {"trees", "neural", "blend"} and min(found.values()) > 0.8, found
    page = (paths.report / "index.html").read_text()
    assert all(f'href="../targets/{name}/report/index.html"' in page for name in ("price", "sold"))
    assert all((paths.target(name).report / "index.html").is_file() for name in ("price", "sold"))

    told = subprocess.run([*COMMAND, *predict], capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    written = pd.read_parquet("predictions.parquet")
    assert [*written] == [
        "price_prediction", "sold_prediction", "sold_probability_no", "sold_probability_yes",
    ]  # fmt: skip
    new, model = pd.read_parquet("new.parquet"), sparkgpu.load(paths.root)
    both = model.predict(new)
    assert both["price"].tolist() == written["price_prediction"].tolist()
    assert both["sold"].tolist() == written["sold_prediction"].tolist()
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names = {"sparkgpu": sparkgpu, "new": new}
    exec(shown[shown.index("model = ") :], names)
    assert names["model"].run_dir == model.run_dir
    alone = sparkgpu.load(paths.target("sold").root, "neural")
    np.testing.assert_allclose(
        sparkgpu.load(paths.root, "neural").predict_proba(new)["sold"], alone.predict_proba(new)
    )

    with pytest.raises(
        ConfigError, match=r"several targets\. Give the folder of one: .*targets/price, .*sold"
    ):
        sparkgpu.read_run(paths.root)
    with pytest.raises(ConfigError, match="its network learned sold as well, and a refit takes one target"):
        sparkgpu.refit(paths.target("price").root)

    # A damaged network of one target: it is cut from the joint one again, and the other's trees stay.
    shutil.rmtree(paths.target("sold").trial("neural-s7").root)
    kept = paths.target("price").trial("trees-s7").done.stat().st_mtime
    words = ["run", "--resume", "--out", str(paths.root), "--intervals", ".9"]
    told = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    assert paths.target("price").trial("trees-s7").done.stat().st_mtime == kept
    assert all(
        model.intervals for name in ("price", "sold") for model in read_results(paths.target(name)).models
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--search", "5"], "search takes one target, and data.target names 2. Leave it out, or run each"),
        (["--set", "decision.rule=f1"], "decision takes one target, and data.target names 2. Leave it out,"),
        (["--set", "cluster.master=local[2]"], "cluster.master takes one target, and data.target names 2."),
        (["--metric", "roc_auc"], "metric"),
    ],
)
def test_what_takes_one_target_is_refused_in_one_sentence(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    homes().to_parquet("homes.parquet")
    run, _ = commands()
    found = subprocess.run([*COMMAND, *run, *FEW, *words], capture_output=True, text=True, timeout=300)
    assert found.returncode == 2, found.stderr
    (line,) = [line for line in found.stderr.splitlines() if line.startswith("sparkgpu: ")]
    assert told in line


@pytest.mark.slow
def test_ranks_that_stream_their_rows_learn_all_targets_and_the_python_door_gives_each(
    tmp_path: Path,
) -> None:
    config = {"trees.engine": "xgboost", "trees.ntrees": 20, "neural.epochs": 40, "neural.hidden": [32, 32],
              "neural.learning_rate": 0.01, "neural.data": "stream", "report.level": "short"}  # fmt: skip
    result = sparkgpu.run(
        homes(), target=["price", "sold"], cpu_lanes=2, strategy="ddp", quiet=True, out=tmp_path / "run",
        config=config,
    )  # fmt: skip
    assert (result.exit_code, [*result.targets]) == (0, ["price", "sold"])
    for name, metric in (("price", "r2"), ("sold", "roc_auc")):
        board = result[name].leaderboard().set_index("model")
        assert board.loc["neural", metric] > 0.8
        assert result[name].results.done()[-1].strategy == "ddp"
    assert "<h4>price</h4>" in result._repr_html_() and result.report.is_file()
    assert [*result.load().predict(homes()[:3])] == ["price", "sold"]


@pytest.mark.spark
@pytest.mark.slow
def test_the_trees_of_all_targets_grow_in_one_context_and_spark_predicts_them(
    tmp_path: Path, spark: SparkSession
) -> None:
    source, out = tmp_path / "homes.parquet", tmp_path / "run"
    homes().to_parquet(source)
    words = ["run", str(source), "--target", "price,sold", "--out", str(out), *SMALL, "--cpu-lanes", "1"]
    told = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=500)
    assert told.returncode == 0, told.stderr
    events = (RunPaths(root=out).lane(0).events("trees")).read_text()
    assert events.count('"starting H2O"') == 1
    for name in ("price", "sold"):
        paths = RunPaths(root=out).target(name)
        trees = next(model for model in read_results(paths).models if model.name == "trees")
        assert (trees.engine, trees.status) == ("h2o-xgboost", "done")
        assert (paths.pipeline / "metadata").is_dir()
    new = homes()[["area", "rooms"]][:30]
    found = sparkgpu.load(out).transform(spark.createDataFrame(new)).toPandas()
    both = sparkgpu.load(out).predict(new)
    np.testing.assert_allclose(found["price_prediction"], both["price"])
    assert found["sold_prediction"].tolist() == both["sold"].tolist() and "sold_probability_yes" in found
