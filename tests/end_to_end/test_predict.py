"""A finished run applied: the command, Python and Spark give again what the run's own trials predicted."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import COMMAND, SMALL, Running, finished, kept, that_decides, write_adult
from standalone import spark_environment

import sparkgpu
from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.words import number_text
from sparkgpu.h2o.mojo import MOJO, MojoModel

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:values that training never saw")]

MODELS = ("trees", "neural", "blend", "trees-s8", "neural-s7")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some thousand rows of a real table of numbers and words with gaps, and a date for each row."""
    folder = tmp_path_factory.mktemp("source")
    table = pq.read_table(write_adult(folder)[0]).slice(0, 6_000)
    days = np.datetime64("2024-01-01") + np.arange(len(table)) % 400
    pq.write_table(
        table.append_column("seen_on", pa.array(days)), folder / "people.parquet", row_group_size=2_000
    )
    return folder / "people.parquet"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_adult(tmp_path_factory.mktemp("target"))[1]


@pytest.fixture(scope="module")
def run(source: Path, target: str, tmp_path_factory: pytest.TempPathFactory) -> Running:
    """A run of two seeds; its directory is then moved and made read-only."""
    folder = tmp_path_factory.mktemp("run")
    found = finished(
        [*COMMAND, "run", source, "--target", target, "--cpu-lanes", "1", "--repeats", "2", *SMALL],
        folder / "out", folder,
    )  # fmt: skip
    moved = folder / "moved" / "run"
    moved.parent.mkdir()
    shutil.move(folder / "out", moved)
    for path in [moved, *moved.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    found.paths = RunPaths(root=moved)
    return found


Call = Callable[..., tuple[int, str, str]]
Predict = Callable[..., tuple[pd.DataFrame | None, str]]


@pytest.fixture
def predicted(run: Running, call: Call, monkeypatch: pytest.MonkeyPatch) -> Predict:
    """The file that ``sparkgpu predict`` writes beside the rows, without a Java, and what it prints."""
    monkeypatch.setenv("JAVA_HOME", "/none")

    def made(
        rows: Path, *options: object, code: int = 0, root: Path = run.paths.root
    ) -> tuple[pd.DataFrame | None, str]:
        out = rows.with_name("predicted.parquet")
        found, said, wrong = call("predict", root, rows, "--out", out, *options)
        assert found == code, said + wrong
        return (pd.read_parquet(out) if out.exists() else None), said + wrong

    return made


@pytest.mark.parametrize("model", MODELS)
def test_each_model_predicts_the_test_rows_as_the_run_did(run: Running, source: Path, model: str) -> None:
    fitted = sparkgpu.load(run.paths.root, model)
    expected = kept(run.paths, fitted.members)
    rows = pd.read_parquet(source).iloc[expected.index]
    found = fitted.predict_proba(rows)
    np.testing.assert_allclose(found, expected.to_numpy(), atol=1e-6, rtol=0)
    assert fitted.predict(rows).tolist() == fitted.classes_[found.argmax(axis=1)].tolist()


def test_the_command_writes_classes_and_probabilities_in_the_rows_order(
    run: Running, predicted: Predict, source: Path, target: str, tmp_path: Path
) -> None:
    rows = pd.read_parquet(source).sample(frac=1.0, random_state=1)
    rows = rows[[*reversed(rows.columns)]].assign(other=1)
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    found, text = predicted(tmp_path / "rows.parquet", "--model", "blend", "--keep-columns")
    fitted = sparkgpu.load(run.paths.root, "blend")
    names = [f"probability_{name}" for name in fitted.schema.classes]
    assert found is not None and list(found) == [*rows.columns, "prediction", *names]
    beside = pq.read_table(tmp_path / "predicted.parquet", columns=list(rows.columns))
    assert beside.equals(pq.read_table(tmp_path / "rows.parquet"))
    np.testing.assert_allclose(found[names], fitted.predict_proba(rows), atol=1e-12)
    assert set(found["prediction"]) <= set(rows[target])
    for word in ("6,000 in ", " rows/s)", "ROC AUC", "95 % interval", "written "):
        assert word in text
    score = np.mean(found["prediction"] == found[target])
    assert score > 0.75


def test_the_command_tells_programs_what_it_found(
    run: Running, predicted: Predict, source: Path, tmp_path: Path
) -> None:
    pd.read_parquet(source).head(200).to_parquet(tmp_path / "rows.parquet")
    _, text = predicted(tmp_path / "rows.parquet", "--model", "blend", "--json")
    found = json.loads(text)
    assert found["model"] == "blend" and found["rows"] == found["score"]["rows"] == 200
    low, high = found["score"]["interval"]
    assert low < found["score"]["metrics"][found["score"]["metric"]] < high


def test_it_predicts_where_spark_h2o_and_java_are_not_installed(run: Running, source: Path) -> None:
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('pyspark', 'h2o', 'py4j', 'ai', 'pysparkling'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import pyarrow.parquet as pq, sparkgpu\n"
        "model = sparkgpu.load(sys.argv[1], 'blend')\n"
        "print(model.predict_proba(pq.read_table(sys.argv[2])).shape)\n"
        "print(sorted({'pyspark', 'h2o', 'py4j', 'ai'} & sys.modules.keys()))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(run.paths.root), str(source)],
        capture_output=True, text=True, timeout=100,
        env={"PATH": "/none", "HOME": os.environ.get("HOME", "/")},
    )  # fmt: skip
    assert ended.stdout.split("\n")[:2] == ["(6000, 2)", "[]"], ended.stderr


def test_rows_of_a_class_that_training_never_saw_are_named_and_not_scored(
    run: Running, predicted: Predict, source: Path, target: str, tmp_path: Path
) -> None:
    rows = pd.read_parquet(source).head(500).astype({target: str}).astype({target: object})
    rows.loc[:6, target] = "77"
    rows.loc[7:9, target] = None
    rows.to_parquet(tmp_path / "rows.parquet")
    _, text = predicted(tmp_path / "rows.parquet")
    assert f"the {target} of 7 rows is a class that training never saw; the metrics leave them out" in text
    assert f"490 rows that have a {target}" in text and "the table of the run" not in text


def test_a_metric_of_a_missing_package_and_a_rule_of_decisions_are_said(
    run: Running, predicted: Predict, source: Path, target: str, tmp_path: Path
) -> None:
    changed, words = that_decides(run.paths.root, tmp_path / "run")
    pd.read_parquet(source).head(300).to_parquet(tmp_path / "rows.parquet")
    _, text = predicted(tmp_path / "rows.parquet", "--model", "trees", root=changed.root)
    assert "metric toy-cost of the run is of a package that is not installed here" in text
    assert f"{words}, by the rule f1\n" in text and "not of that rule" in text and "ROC AUC" in text
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    model = sparkgpu.load(changed.root, "trees")
    found_N, true_N = model.predict_proba(rows)[:, 1] >= 0.3, rows[target] == model.classes_[1]
    f1 = 2 * (found_N & true_N).sum() / (found_N.sum() + true_N.sum())
    assert re.search(rf"F1 of .*  {number_text(f1)} as decided, 0\.\d+ by the most probable class", text)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_folders_of_text_files_give_what_the_parquet_file_gives(
    run: Running, predicted: Predict, source: Path, tmp_path: Path, kind: str
) -> None:
    rows = pd.read_parquet(source).head(700)
    path = tmp_path / "rows" / f"0.{kind}"
    path.parent.mkdir()
    (path.parent / "README.md").write_text("no rows", encoding="utf-8")
    if kind == "csv":
        rows.to_csv(path, index=False)
    else:
        rows.to_json(path, orient="records", lines=True, date_format="iso")
    found, text = predicted(path.parent, "--model", "blend")
    assert found is not None and "README.md" in text
    expected = sparkgpu.load(run.paths.root, "blend").predict_proba(rows)
    np.testing.assert_allclose(found.filter(like="probability"), expected, atol=1e-12)


def test_frames_of_other_libraries_give_what_pandas_gives(run: Running, source: Path) -> None:
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    model = sparkgpu.load(run.paths.root, "blend")
    expected = model.predict_proba(pd.read_parquet(source))
    for frame in (
        pq.read_table(source), polars.read_parquet(source), duckdb.sql(f"select * from '{source}'"),
    ):  # fmt: skip
        np.testing.assert_allclose(model.predict_proba(frame), expected, atol=1e-12)


def test_new_levels_and_gaps_everywhere_are_predicted_as_java_predicts_them(
    run: Running, source: Path, java: Path
) -> None:
    rows = pd.read_parquet(source).head(400).reset_index(drop=True)
    for place, name in enumerate(rows.columns):
        if isinstance(rows[name].dropna().iloc[0], str):
            rows.loc[place % 5 :: 5, name] = "never seen"
        rows.loc[place % 7 :: 7, name] = None
    rows.loc[399] = None
    model = sparkgpu.load(run.paths.root, "trees-s7")
    encoder = model.encoder()
    encoded = encoder.rows(pa.Table.from_pandas(rows, preserve_index=False).combine_chunks().to_batches()[0])
    by_java = MojoModel(run.paths.trial("trees-s7").root / MOJO, model.schema).predict(encoded)
    with pytest.warns(UserWarning):
        found = model.predict_proba(rows)
    np.testing.assert_allclose(found, by_java, atol=1e-6, rtol=0)
    assert encoder.findings.unknown and "that training never saw" in encoder.findings.sentences()[0]
    with pytest.warns(UserWarning, match="that training never saw count as missing"):
        model.predict(rows)
    with pytest.warns(UserWarning):
        assert np.isfinite(sparkgpu.load(run.paths.root, "neural").predict_proba(rows)).all()


def test_what_cannot_be_predicted_is_refused_in_one_sentence(
    run: Running, predicted: Predict, source: Path, tmp_path: Path
) -> None:
    rows = pd.read_parquet(source).head(50)
    feature = str(sparkgpu.load(run.paths.root, "trees").feature_names_in_[0])
    rows.drop(columns=[feature]).to_parquet(tmp_path / "fewer.parquet")
    found, text = predicted(tmp_path / "fewer.parquet", code=4)
    assert found is None and f"the model needs column {feature!r}, which it does not have." in text
    rows.to_parquet(tmp_path / "rows.parquet")
    for options, words in (
        (["--model", "tree"], "model 'tree': it is not in this run. Did you mean 'trees'?"),
        (["--out", str(tmp_path / "a.txt")], "its ending must be .parquet or .csv"),
        (["--out", str(tmp_path / "none" / "a.csv")], "there is no folder"),
        (["--out", str(tmp_path / "rows.parquet")], "it exists. Give a new file, or remove it."),
    ):
        found, text = predicted(tmp_path / "rows.parquet", *options, code=2)
        assert found is None and words in text and text.count("\n") == 1, text
    with pytest.raises(DataError, match="is of type list"):
        sparkgpu.load(run.paths.root).predict(rows.assign(**{feature: [[1]] * 50}))
    assert not list(tmp_path.glob(".*"))


@pytest.fixture
def exported(run: Running, call: Call) -> Callable[..., str]:
    """What ``sparkgpu export`` prints."""

    def said(format: str, model: str, out: Path, code: int = 0) -> str:
        found, *texts = call("export", run.paths.root, "--format", format, "--model", model, "--out", out)
        assert found == code, texts
        return "".join(texts)

    return said


@pytest.mark.parametrize("name", ["neural-s8", "trees-s7"])
def test_onnxruntime_alone_predicts_from_words_and_numbers(
    run: Running, exported: Callable[..., str], source: Path, tmp_path: Path, name: str
) -> None:
    assert exported("onnx", name, tmp_path / "n.onnx") == f"{tmp_path / 'n.onnx'}\n"
    model = sparkgpu.load(run.paths.root, name)
    rows = pd.read_parquet(source).tail(500)
    encoded = model.encoder().rows(pa.record_batch(pa.Table.from_pandas(rows).to_batches()[0]))
    feed = {}
    for place, feature in enumerate(model.schema.numeric):  # of a date: its parts
        if feature.means_of:  # the graph looks them up
            continue
        feed[feature.name if feature.part else feature.source] = encoded.numeric_NF[:, [place]]
    for feature in model.schema.categorical:
        words = rows[feature.source]
        feed[feature.source] = words.where(words.notna(), "").to_numpy(str)[:, None]
    np.savez(tmp_path / "feed.npz", **feed)
    program = (
        "import sys, numpy, onnxruntime\n"
        "file, feed, out = sys.argv[1:]\n"
        "session = onnxruntime.InferenceSession(file)\n"
        "given = dict(numpy.load(feed))\n"
        "numpy.save(out, session.run(None, given)[0])\n"
        "assert not {'torch', 'sparkgpu'} & sys.modules.keys()"
    )
    subprocess.run(
        [sys.executable, "-c", program, tmp_path / "n.onnx", tmp_path / "feed.npz", tmp_path / "out.npy"],
        check=True, timeout=60,
    )  # fmt: skip
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), model.predict_proba(rows), atol=1e-4)


def test_trees_are_exported_as_a_mojo_and_as_an_xgboost_model(
    run: Running, exported: Callable[..., str], tmp_path: Path
) -> None:
    import xgboost

    exported("mojo", "trees-s7", tmp_path / "trees.zip")  # which asks H2O's library in Java
    exported("xgboost", "trees-s7", tmp_path / "trees.ubj")
    booster = xgboost.Booster(model_file=tmp_path / "trees.ubj")
    encoding = json.loads(booster.attr("encoding") or "")
    found = {feature["name"]: feature for feature in encoding["features"]}
    schema = sparkgpu.load(run.paths.root, "trees-s7").schema
    for feature in schema.features:
        words = found.pop(feature.name).get("words", ())
        assert bool(words) if feature.means_of else set(words) == set(feature.levels)
    assert not found
    assert booster.num_boosted_rounds() <= 20


def test_what_cannot_be_exported_is_refused_in_one_sentence(
    run: Running, exported: Callable[..., str], tmp_path: Path
) -> None:
    for format, model, out, words in (
        ("lightgbm", "trees-s7", "a.txt", "no such format. Choose one of mojo, xgboost, onnx, mlflow."),
        ("torch", "neural", "a", "it is a mean of neural-s7, neural-s8, and a file holds one of them."),
        ("onnx", "neural-s7", "a.txt", "with --format onnx it must end with .onnx."),
    ):
        text = exported(format, model, tmp_path / out, code=2)
        assert words in text and text.count("\n") == 1
    exported("torch", "neural-s7", tmp_path / "none" / "b" / "a")
    assert (tmp_path / "none" / "b" / "a" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_stage_of_a_saved_pipeline_predicts_in_another_session(
    run: Running, source: Path, tmp_path: Path
) -> None:
    program = (
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "from pyspark.ml import Pipeline, PipelineModel\n"
        "from sparkgpu.spark import SparkgpuModel\n"
        "run, source, folder, made = sys.argv[1:]\n"
        "session = SparkSession.builder.master('local[2]').getOrCreate()\n"
        "if made == 'new':\n"
        "    stage = SparkgpuModel(runDir=run, model='blend')\n"
        "    Pipeline(stages=[stage]).fit(session.range(1)).write().save(folder + '/pipeline')\n"
        "else:\n"
        "    table = session.read.parquet(source).repartition(3)\n"
        "    found = PipelineModel.load(folder + '/pipeline').transform(table)\n"
        "    found.toPandas().to_parquet(folder + '/found.parquet')\n"
    )
    for made in ("new", "loaded"):
        subprocess.run(
            [sys.executable, "-c", program, str(run.paths.root), str(source), str(tmp_path), made],
            check=True, timeout=150, env=spark_environment(), capture_output=True,
        )  # fmt: skip
    found = pd.read_parquet(tmp_path / "found.parquet")
    assert len(found) == 6_000
    expected = sparkgpu.load(run.paths.root, "blend").predict_proba(found)
    np.testing.assert_allclose(found.filter(like="probability"), expected, atol=1e-9)
