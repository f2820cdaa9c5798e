"""Small real tables: the same numbers twice, every kind of task, folds, quiet mode, bad data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from running import COMMAND, SMALL, finished, write_table

import sparkgpu
from sparkgpu.core.config import toml as config_io

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    """The results that must be equal in two runs of the same configuration."""
    return {
        "models": metrics["models"],
        "comparison": metrics["comparison"],
        "data": {key: value for key, value in metrics["data"].items() if key != "source"},
        "trials": {
            trial["name"]: (trial["metrics"], trial["best_iteration"], trial["native_parameters"])
            for trial in metrics["trials"]
        },
    }


@pytest.mark.slow
def test_a_run_toml_repeats_its_run_number_by_number_and_quietly(tmp_path: Path) -> None:
    wine = write_table("wine", tmp_path)
    first = finished(
        [*COMMAND, "run", wine, "--target", "target", "--task", "multiclass", "--cpu-lanes", "1",
         "--set", "seed=3", *SMALL, "--set", "log_level=info"],
        tmp_path / ".hidden" / "first", tmp_path,
    )  # fmt: skip
    assert first.metrics["data"]["task"] == "multiclass"
    assert len(first.metrics["data"]["classes"]) == 3
    for model in first.metrics["models"]:
        assert tuple(model["metrics"]["test"]) == ("log_loss", "accuracy", "balanced_accuracy", "f1_macro")
    trees = next(model for model in first.metrics["models"] if model["name"] == "trees")
    assert trees["trials"] == ["trees-s3"]
    assert trees["metrics"]["test"]["accuracy"] > 0.8
    first_words = first.stdout
    assert " INFO SharedState: " in first.paths.lane(0).log.read_text(encoding="utf-8")  # Spark's

    again = finished(
        [*COMMAND, "run", "--config", first.paths.config, "--quiet"], tmp_path / "second", tmp_path
    )
    assert numbers(again.metrics) == numbers(first.metrics)
    assert config_io.load(file=again.paths.config) == config_io.load(file=first.paths.config)

    assert again.stderr == ""
    assert "starting Spark" in first_words
    assert "starting Spark" not in again.stdout
    result = first_words[first_words.index("test split") :]
    assert again.stdout.strip().startswith("test split")
    for line in result.splitlines():
        if "fit time" not in line and not line.startswith(("run", "report")):
            assert line.rstrip() in again.stdout


@pytest.mark.slow
def test_a_csv_file_gives_what_the_parquet_file_of_the_same_rows_gives(tmp_path: Path) -> None:
    wine = pd.read_parquet(write_table("wine", tmp_path))
    wine = wine.assign(
        target=wine["target"].astype("int32"), word=[f"w{row % 5}" for row in range(len(wine))]
    )
    wine.to_parquet(tmp_path / "a.parquet")
    wine.to_csv(tmp_path / "a.csv", index=False)
    runs = {
        ending: finished(
            [*COMMAND, "run", tmp_path / f"a.{ending}", "--target", "target", "--cpu-lanes", "1", *SMALL],
            tmp_path / ending, tmp_path,
        )
        for ending in ("parquet", "csv")
    }  # fmt: skip
    assert numbers(runs["csv"].metrics) == numbers(runs["parquet"].metrics)
    assert runs["csv"].metrics["data"]["source"] == str(tmp_path / "a.csv")
    assert config_io.load(file=runs["csv"].paths.config).data.source == str(tmp_path / "a.csv")
    log = (runs["csv"].paths.lane(0).root / "lane.log").read_text(encoding="utf-8")
    assert "Spark reads it" not in log


@pytest.mark.slow
def test_a_spark_dataframe_with_folds_gives_a_regression_over_all_of_them(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_parquet(write_table("diabetes", tmp_path))
    frame["sex"] = frame["sex"].map(lambda value: "f" if value < 0 else "m").where(frame.index % 7 > 0)
    frame.to_parquet(tmp_path / "diabetes.parquet")
    result = sparkgpu.run(
        spark.read.parquet(str(tmp_path / "diabetes.parquet")).repartition(3),
        target="target",
        cpu_lanes=1,
        config={
            "split": {"folds": 2},
            "trees": {"ntrees": 20},
            "neural": {"epochs": 30, "hidden": [32]},
            "data.roles": {"sex": "categorical"},
        },
        out=tmp_path / "out",
        quiet=True,
    )
    assert (result.exit_code, result.path) == (0, tmp_path / "out")
    data = result.metrics["data"]
    assert (data["task"], data["classes"], data["rows"]) == ("regression", [], len(frame))
    assert [(trial["name"], trial["fold"]) for trial in result.metrics["trials"]] == [
        ("trees-s7-f0", 0), ("neural-s7-f0", 0), ("trees-s7-f1", 1), ("neural-s7-f1", 1),
    ]  # fmt: skip
    found = result.leaderboard().set_index("model")
    assert set(found.index) == {"trees", "neural", "blend"}
    assert {"rmse", "mae", "r2", "spearman"} <= set(found.columns)
    spread = frame["target"].std()
    assert 0.4 * spread < found.loc["trees", "rmse"] < 0.95 * spread
    assert found.loc["blend", "rmse"] < 0.95 * spread
    assert len(result.verdicts) == 3
    assert all("RMSE" in sentence for sentence in result.verdicts)
    assert result.report.read_text(encoding="utf-8").startswith("<!")
    for text in (str(result), result._repr_html_()):
        assert str(result.report) in text
        assert "RMSE" in text
        assert result.verdicts[0].split()[0] in text
    out, err = capfd.readouterr()
    assert err == ""
    assert "starting Spark" not in out
    schema = json.loads((result.path / "table" / "schema.json").read_text(encoding="utf-8"))
    (sex,) = (feature for feature in schema["features"] if feature["source"] == "sex")
    assert (sex["kind"], sex["levels"]) == ("categorical", ["f", "m"])
    assert spark.range(3).count() == 3  # the session of the table still works


@pytest.mark.parametrize(
    ("target", "words"),
    [
        pytest.param("tagret", ("tagret", "Did you mean 'target'?"), id="no such target"),
        pytest.param("constant", ("constant", "one class"), id="one class", marks=pytest.mark.slow),
    ],
)
def test_bad_data_is_one_line_and_leaves_no_process(
    tmp_path: Path, target: str, words: tuple[str, ...]
) -> None:
    frame = pd.read_parquet(write_table("wine", tmp_path)).assign(constant="same")
    frame.to_parquet(tmp_path / "table.parquet")
    run = finished(
        [*COMMAND, "run", tmp_path / "table.parquet", "--target", target, "--cpu-lanes", "1"],
        tmp_path / "out", tmp_path, code=4,
    )  # fmt: skip
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("sparkgpu: ")
    for word in words:
        assert word in run.stderr
    assert "Traceback" not in run.stdout
    assert not run.paths.table.exists()
    assert run.left_behind() == []


@pytest.mark.parametrize(
    ("data", "target", "message"),
    [
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "a",
         "the DataFrame has duplicate column names: a. Give each column one name."),
        ({"a": [1]}, "a",
         "data is a builtins.dict; give a path, table:NAME, a Spark DataFrame, or a pandas, polars or other "
         "frame that exports Arrow."),
    ],
    ids=["a name twice", "no table"],
)  # fmt: skip
def test_data_that_is_no_table_is_refused_before_anything_starts(
    data: Any, target: str, message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        sparkgpu.run(data, target=target)
    assert str(caught.value) == message
