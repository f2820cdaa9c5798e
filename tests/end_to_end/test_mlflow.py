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
from trained_run import prepared_run, train

import sparkgpu
from sparkgpu.core.table.schema import Task

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
    has_network = any(name.startswith("neural") for name in fitted.members)  # it may have no weight
    assert ("torch" in needed) == has_network and "sparkgpu" not in needed
    np.testing.assert_allclose(found.filter(like="probability"), fitted.predict_proba(rows), atol=1e-6)
    assert found["prediction"].tolist() == fitted.predict(rows).tolist()


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=5).close()
        return True
    except OSError:
        return False


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_every_model_scores_the_table_of_its_training(python: Path, task: Task, tmp_path: Path) -> None:
    """Columns of every kind with gaps, mean targets, and as a CSV file has them."""
    models = {
        **{name: (name, {"trees.ntrees": 20}) for name in ("xgboost", "lightgbm", "catboost")},
        "neural": ("torch", {"neural.architecture": "mlp", "neural.epochs": 1}),
    }
    train(paths := prepared_run(tmp_path / "run", task), models)
    program = (
        "import io, sys, mlflow, pandas, numpy, sparkgpu\n"
        "from pathlib import Path\n"
        "from sparkgpu.predict.export import export\n"
        "run = Path(sys.argv[1])\n"
        "rows = pandas.read_parquet(run / 'people.parquet')\n"
        "text = pandas.read_csv(io.StringIO(rows.to_csv(index=False)))\n"
        "for model in sys.argv[2:]:\n"
        "    fitted = sparkgpu.load(run, model)\n"
        "    served = mlflow.pyfunc.load_model(str(export(run, model, 'mlflow')))\n"
        "    classes = fitted.schema.classes\n"
        "    wanted = fitted.predict_proba(rows) if classes else fitted.predict(rows)[:, None]\n"
        "    for given in (rows, text):\n"
        "        found = served.predict(given)\n"
        "        assert found['prediction'].tolist() == fitted.predict(rows).tolist(), model\n"
        "        values = found.filter(like='probability') if classes else found\n"
        "        numpy.testing.assert_allclose(values, wanted, atol=1e-6)"
    )
    ended = subprocess.run(
        [python, "-c", program, paths.root, *models, "blend"],
        capture_output=True, text=True, timeout=400, env=ENVIRONMENT, cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
