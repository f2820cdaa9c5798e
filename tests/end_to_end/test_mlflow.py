"""MLflow gets a run and serves its model. It has an environment of its own, since it pins other versions."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import REPOSITORY, SMALL, until, write_table

import sparkgpu

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

ENVIRONMENT = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python with MLflow before all that is installed here."""
    folder = tmp_path_factory.mktemp("mlflow") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    (packages / "zz_here.pth").write_text(f"{sysconfig.get_path('purelib')}\n{REPOSITORY}\n")
    subprocess.run([folder / "bin" / "pip", "install", "-q", "mlflow>=3.1"], check=True, timeout=600)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def run(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``sparkgpu run ... --mlflow FOLDER``."""
    folder = tmp_path_factory.mktemp("run")
    table = write_table("wine", folder)
    subprocess.run(
        [
            python, "-m", "sparkgpu", "run", table, "--target", "target", "--cpu-lanes", "1", *SMALL,
            "--out", folder / "out", "--mlflow", f"sqlite:///{folder}/mlflow.db",
        ],
        check=True, timeout=200, env=ENVIRONMENT, cwd=folder,
    )  # fmt: skip
    return folder / "out"


def test_a_run_is_logged_with_parameters_metrics_curves_report_and_model(python: Path, run: Path) -> None:
    program = (
        "import json, sys, mlflow\n"
        "mlflow.set_tracking_uri(sys.argv[1])\n"
        "(run,) = mlflow.search_runs(experiment_names=['sparkgpu'], output_format='list')\n"
        "client = mlflow.MlflowClient()\n"
        "names = [name for name in run.data.metrics if name.startswith('neural-s7')]\n"
        "names = [name for name in names if name.endswith('.valid')]\n"
        "(name,) = names\n"
        "artifacts = [file.path for file in client.list_artifacts(run.info.run_id)]\n"
        "(model,) = client.search_logged_models(experiment_ids=[run.info.experiment_id])\n"
        "print(json.dumps([run.data.params, run.data.metrics, artifacts, model.name,\n"
        "                  len(client.get_metric_history(run.info.run_id, name))]))"
    )
    uri = f"sqlite:///{run.parent}/mlflow.db"
    told = subprocess.run([python, "-c", program, uri], capture_output=True, text=True, env=ENVIRONMENT)
    assert told.returncode == 0, told.stderr
    parameters, metrics, artifacts, model, epochs = json.loads(told.stdout.splitlines()[-1])
    assert parameters["trees.ntrees"] == "20" and parameters["data.target"] == "target"
    results = json.loads((run / "metrics.json").read_text())
    (blend,) = (one for one in results["models"] if one["name"] == "blend")
    assert metrics["blend.test.log_loss"] == blend["metrics"]["test"]["log_loss"]
    assert {"report", "metrics.json", "run.toml"} <= set(artifacts) and model == "model" and epochs == 2


def test_mlflow_serves_a_model_and_the_answers_are_the_runs_own(
    python: Path, run: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    subprocess.run(
        [python, "-m", "sparkgpu", "export", run, "--model", "blend", "--format", "mlflow", "--out", model],
        check=True, timeout=200, env=ENVIRONMENT,
    )  # fmt: skip
    assert not [file for file in model.rglob("*") if file.suffix in (".pkl", ".pickle")]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [python, "-m", "mlflow", "models", "serve", "-m", model, "-p", str(port), "--env-manager", "local"],
        env={**ENVIRONMENT, "PATH": f"{python.parent}:{os.environ['PATH']}"}, cwd=tmp_path,
        start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: _answers(f"http://127.0.0.1:{port}/ping"), "the server answers", 120, server)
        rows = pd.read_parquet(run.parent / "wine.parquet").drop(columns=["target"]).head(40)
        rows.iloc[3, 2] = np.nan
        body = json.dumps({"dataframe_split": json.loads(rows.to_json(orient="split", index=False))})
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations", body.encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = pd.DataFrame(json.load(answer)["predictions"])
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)
    fitted = sparkgpu.load(run, "blend")
    needed = {line.partition("==")[0] for line in (model / "requirements.txt").read_text().split()}
    assert "torch" in needed and "sparkgpu" not in needed
    np.testing.assert_allclose(found.filter(like="probability"), fitted.predict_proba(rows), atol=1e-6)
    assert found["prediction"].tolist() == fitted.predict(rows).tolist()


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=5).close()
        return True
    except OSError:
        return False


def test_a_model_scores_the_table_that_it_was_trained_on(python: Path, tmp_path: Path) -> None:
    """Whole numbers with and without gaps, dates, booleans and words, and columns that it does not need."""
    drawn = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "count": drawn.integers(0, 90, 400),
            "gaps": pd.array(drawn.integers(0, 90, 400), dtype="Int64"),
            "zone": drawn.integers(1, 4, 400),
            "since": pd.Timestamp("2024-01-01") + pd.to_timedelta(drawn.integers(0, 500, 400), unit="D"),
            "member": drawn.random(400) < 0.5,
            "town": drawn.choice(["a", "b", None], 400),
        }
    )
    rows.loc[::9, "gaps"] = pd.NA
    rows["y"] = np.where(rows["count"] + 30 * rows["member"] + drawn.normal(0, 9, 400) > 60, 7, 3)
    table, out, model = tmp_path / "rows.parquet", tmp_path / "run", tmp_path / "model"
    rows.to_parquet(table)
    settings = ("trees.engine=xgboost", "trees.ntrees=20", "neural.epochs=2", "report.level=short")
    sets = [part for setting in settings for part in ("--set", setting)]
    program = (
        "import sys, mlflow, pandas, sparkgpu\n"
        "model, table, run = sys.argv[1:]\n"
        "rows = pandas.read_parquet(table)\n"
        "found = mlflow.pyfunc.load_model(model).predict(rows)\n"
        "assert found['prediction'].tolist() == sparkgpu.load(run, 'blend').predict(rows).tolist()"
    )
    for arguments in (
        ["-m", "sparkgpu", "run", table, "--target", "y", "--cpu-lanes", "1", *sets, "--out", out],
        ["-m", "sparkgpu", "export", out, "--model", "blend", "--format", "mlflow", "--out", model],
        ["-c", program, model, table, out],
    ):
        ended = subprocess.run(
            [python, *arguments], capture_output=True, text=True, timeout=200, env=ENVIRONMENT, cwd=tmp_path
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
