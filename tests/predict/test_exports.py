"""Every exported file, read by its own library from raw values, predicts new rows as the run does.

Words that training never saw, gaps in every kind of column, and a row without any value are among them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from trained_run import people, prepared_run, train

import sparkgpu
from sparkgpu.core.host.reservations import scratch_folder
from sparkgpu.core.rundir.files import read_record
from sparkgpu.core.rundir.metrics_json import finished_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import Task
from sparkgpu.h2o.startup import assembly_jar
from sparkgpu.predict.export import export
from sparkgpu.predict.export_formats import FORMATS
from sparkgpu.score.calibration import scaled

pytestmark = pytest.mark.filterwarnings("ignore:values that training never saw")

DOCS = Path(__file__).parents[2] / "docs" / "export.md"
BLOCKS = [
    block for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S) if "encoding" in block
]
(ONE_ROW,) = re.findall(r"```python\n(row = .*?)```", DOCS.read_text(), re.S)
TASKS: tuple[Task, ...] = ("binary", "multiclass", "regression")
TREES = {"trees.ntrees": 20, "trees.learn_rate": 0.3}
NETWORK = {"neural.epochs": 2, "neural.hidden": [16, 16]}
TABM = {**NETWORK, "neural.architecture": "tabm", "neural.members": 2, "neural.num_bins": 8}
MODELS = {
    "xgboost": ("xgboost", TREES), "lightgbm": ("lightgbm", TREES), "catboost": ("catboost", TREES),
    "tabm": ("torch", TABM), "cosine": ("torch", {**TABM, "neural.number_embedding": "cosine"}),
    "realmlp": ("torch", {**NETWORK, "neural.architecture": "realmlp"}),
    "mlp": ("torch", {**NETWORK, "neural.architecture": "mlp"}),
    "resnet": ("torch", {**NETWORK, "neural.architecture": "resnet"}),
    "modernnca": ("torch", {**NETWORK, "neural.architecture": "modernnca", "neural.embedding_dim": 4}),
}  # fmt: skip


@pytest.fixture(scope="module", params=TASKS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    paths = prepared_run(tmp_path_factory.mktemp("exports") / request.param, request.param)
    train(paths, MODELS)
    return paths.root


@pytest.fixture(scope="module")
def h2o_runs(java: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of H2O's trees for each task, all trained in one H2O."""
    folder = tmp_path_factory.mktemp("h2o")
    runs = {task: prepared_run(folder / task, task) for task in TASKS}
    encodings = dict(zip(TASKS, ("one_hot_internal", "sort_by_response", "label_encoder"), strict=True))
    trials = [
        {
            "run_dir": str(paths.root), "name": f"{task}-s7", "parsed": False, "fold": None,
            "settings": {"ntrees": 20, "max_depth": 4, "categorical_encoding": encodings[task]},
            "ntrees_of": None,
        }
        for task, paths in runs.items()
    ]  # fmt: skip
    (folder / "trials.json").write_text(json.dumps(trials))
    script = Path(__file__).parents[1] / "trees" / "h2o_trials.py"
    with scratch_folder() as scratch:
        subprocess.run(
            [sys.executable, script, scratch, folder / "trials.json"], check=True, timeout=250,
            env={**os.environ, "JAVA_HOME": str(java), "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
    for paths in runs.values():
        train(
            paths, {paths.root.name: ("h2o-xgboost", {})},
            lambda spec, paths=paths: read_record(paths.trial(spec.name).fit, FitRecord),
        )  # fmt: skip
    return {task: paths.root for task, paths in runs.items()}


@pytest.fixture(scope="module")
def new() -> pd.DataFrame:
    """Rows that were not trained on."""
    rows = people(300, 2, "regression").drop(columns=["y"])
    rows.loc[::7, "island"] = "Atlantis"
    rows.loc[::11, "street"] = "s-new"
    rows.loc[::13, "zone"] = 9
    rows.loc[5] = None
    return rows


def expected(run: Path, model: str, rows: pd.DataFrame) -> Any:
    fitted = sparkgpu.load(run, model)
    return fitted.predict_proba(rows) if fitted.schema.classes else fitted.predict(rows)


def threads_agree(run: Path, model: str, rows: pd.DataFrame) -> None:
    """Eight threads predict at once with one loaded model, each its own part, several times."""
    fitted = sparkgpu.load(run, model)
    ask = fitted.predict_proba if fitted.schema.classes else fitted.predict
    parts = [rows.iloc[begin::8] for begin in range(8)]
    wanted = [ask(part) for part in parts]
    with ThreadPoolExecutor(8) as threads:
        for found in (list(threads.map(ask, parts)) for _ in range(10)):
            np.testing.assert_equal(found, wanted)


def temperature_of(run: Path, model: str) -> float:
    done = finished_results(RunPaths(root=run)).done()
    return next(trial.temperature for trial in done if trial.name == model) or 1.0


def agree(run: Path, model: str, format: str, rows: pd.DataFrame) -> None:
    """Export a model, read the file by the lines of the documentation, and compare."""
    for module in FORMATS[format].needs:
        pytest.importorskip(module)
    file, wanted = export(run, model, format), expected(run, model, rows)
    found = read_as_documented(file, format, rows, run.name)
    found = np.stack([1 - found, found], 1) if found.ndim < wanted.ndim else found
    if (by := temperature_of(run, model)) > 1:  # it enlarges what a float32 near 1 lost
        found, wanted = scaled(found, 1 / by), scaled(wanted, 1 / by)
    np.testing.assert_allclose(found, wanted, atol=FORMATS[format].tolerance * max(1, np.abs(wanted).max()))


def read_as_documented(file: Path, format: str, rows: pd.DataFrame, task: str) -> Any:
    program = {"torch": "import load_model", "onnx": "import onnxruntime"}.get(format, f"import {format}")
    lines = next(block for block in BLOCKS[1:] if program in block)
    lines = re.sub(r'exports/\w+-s7(\.\w+)?(?=["/])', str(file), lines)
    if task == "regression":
        lines = lines.replace("Probability", "RawFormulaVal")
    names: dict[str, Any] = {"frame": rows}
    exec(BLOCKS[0] + lines, names)
    if format == "onnx":
        one_row_agrees(names)
    return np.asarray(names["found"].detach() if format == "torch" else names["found"])


def one_row_agrees(names: dict[str, Any]) -> None:
    """The documentation's lines for one row give what the row has among many; a gap may be left out."""
    among = names["found"]
    for place in (0, 5, 7):  # row 5 has no value
        values = {name: value_N1[place, 0] for name, value_N1 in names["feed"].items()}
        names["values"] = {name: value for name, value in values.items() if value not in ("", np.nan)}
        exec(re.sub(r"row = \{.*\}", "row = values", ONE_ROW), alone := dict(names))
        np.testing.assert_allclose(alone["found"][0], among[place], atol=1e-6 * max(1, abs(among).max()))


@pytest.mark.parametrize("model", [*MODELS, "blend"])
def test_threads_that_predict_at_once_get_the_numbers_of_one(
    run: Path, new: pd.DataFrame, model: str
) -> None:
    threads_agree(run, model, new)


@pytest.mark.parametrize("model", MODELS)
def test_a_row_alone_is_predicted_as_among_many(run: Path, new: pd.DataFrame, model: str) -> None:
    alone = [expected(run, model, new.iloc[[place]]) for place in range(0, len(new), 60)]
    among = expected(run, model, new)[::60]
    np.testing.assert_allclose(np.concatenate(alone), among, atol=1e-6 * max(1, np.abs(among).max()))


@pytest.mark.parametrize("model", MODELS)
def test_a_file_read_as_documented_predicts_raw_values_as_the_run_does(
    run: Path, new: pd.DataFrame, model: str
) -> None:
    agree(run, f"{model}-s7", "torch" if MODELS[model][0] == "torch" else model, new)


def test_a_program_learns_where_the_file_is(
    run: Path, tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    file = tmp_path / "trees.ubj"
    asked = ("--model", "xgboost-s7", "--format", "xgboost", "--out", file)
    code, out, _ = call("export", run, *asked, "--json")
    assert (code, json.loads(out)) == (0, {"file": str(file), "format": "xgboost", "notes": []})


@pytest.mark.process
def test_amounts_keep_their_unit_in_every_file(tmp_path: Path, new: pd.DataFrame) -> None:
    """What models learned of another distribution are exponentials, which the files have to make."""
    models = {
        f"{engine}-{name}": (engine, {**TREES, "trees.distribution": name})
        for engine, name in (("xgboost", "poisson"), ("xgboost", "gamma"), ("lightgbm", "tweedie"))
    }
    models["net"] = ("torch", {**TABM, "neural.distribution": "lognormal"})
    train(paths := prepared_run(tmp_path / "regression", "regression", amounts=True), models)
    scored = {one.name: one.metrics.test for one in finished_results(paths).models if one.metrics.test}
    assert {"net", "blend"} < scored.keys()
    assert all(0 < (metrics["rmse_of_logarithms"] or 0) < 2 for metrics in scored.values())
    for model, (engine, _) in models.items():
        assert expected(paths.root, f"{model}-s7", new).min() > 1e5
        for format in (engine,) if engine != "torch" else ("torch", "onnx"):
            agree(paths.root, f"{model}-s7", format, new)


@pytest.mark.process
@pytest.mark.parametrize("model", [name for name, (engine, _) in MODELS.items() if engine == "torch"])
def test_a_network_as_onnx_predicts_raw_values_as_the_run_does(
    request: pytest.FixtureRequest, run: Path, new: pd.DataFrame, model: str
) -> None:
    """Torch takes seconds for each: all of them with ``--slow``, else one of each task."""
    always = {("binary", "tabm"), ("multiclass", "realmlp"), ("regression", "cosine")}
    if (run.name, model) not in always and not request.config.getoption("--slow"):
        pytest.skip("slow: run it with --slow")
    agree(run, f"{model}-s7", "onnx", new)


@pytest.mark.spark
@pytest.mark.parametrize("format", ["xgboost", "onnx", "mojo"])
@pytest.mark.parametrize("task", TASKS)
def test_h2os_trees_in_a_file_predict_raw_values_as_the_run_does(
    h2o_runs: dict[str, Path], new: pd.DataFrame, java: Path, task: str, format: str, tmp_path: Path
) -> None:
    run, model = h2o_runs[task], f"{task}-s7"
    threads_agree(run, model, new)
    if format != "mojo":
        agree(run, model, format, new)
        return
    booster = xgboost.Booster(model_file=export(run, model, "xgboost", tmp_path / "trees.ubj"))
    names: dict[str, Any] = {"frame": new, "encoding": json.loads(booster.attr("encoding") or "")}
    exec(BLOCKS[0] + "rows, codes = read(encoding)", names)
    as_text = {
        name: values.cat.rename_categories(str)
        for name, values in names["rows"].items()
        if values.dtype == "category"
    }
    names["rows"].assign(**as_text).to_csv(tmp_path / "rows.csv", index=False, na_rep="NA")
    subprocess.run(
        [
            java / "bin" / "java", "-cp", assembly_jar(), "hex.genmodel.tools.PredictCsv", "--decimal",
            "--mojo", export(run, model, "mojo"), "--input", tmp_path / "rows.csv",
            "--output", tmp_path / "found",
        ],
        check=True, timeout=60,
    )  # fmt: skip
    found, wanted = pd.read_csv(tmp_path / "found").to_numpy(), expected(run, model, new)
    if task == "regression":
        np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-6)
        return
    at_one = scaled(wanted, 1 / temperature_of(run, model))  # a MOJO cannot hold a temperature
    np.testing.assert_allclose(found[:, 1:].astype(float), at_one, atol=1e-6)
