"""A run in MLflow: its parameters, metrics, curves and report, and a model that MLflow serves.

MLflow is imported when it is needed (extra ``mlflow``).
"""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparkgpu.core.config.keys import PASSWORD_IN_URL
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.errors import ConfigError, DeviceError, TrialError
from sparkgpu.core.rundir.curve import read_curve
from sparkgpu.core.rundir.metrics_json import Results, finished_results, read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import Feature
from sparkgpu.predict.fitted import FittedModel
from sparkgpu.predict.members import BEST
from sparkgpu.prepare.columns import WHOLE_TYPES
from sparkgpu.prepare.target_means import FOLDER as MEANS_FOLDER
from sparkgpu.prepare.texts import FOLDER as TEXTS_FOLDER

if TYPE_CHECKING:
    import pandas as pd

RUN, NAME = "run", "model_name"
"""The artifact with the run's files, and the file in it that names the model."""

_EXPERIMENT = "sparkgpu"
_ALWAYS = ("numpy", "pandas", "psutil", "pyarrow", "pydantic")
_MODULES = {"torch": {"torch", "safetensors"}, "h2o-xgboost": {"xgboost"}}
"""What loads the models of an engine, where that is more than the engine's own module, or another one."""

_EXAMPLE_ROWS = 5
_SECONDS_PER_DAY = 86_400
_TOLERANCE = 1e-6


def check_mlflow(uri: str = "") -> None:
    """Raise `DeviceError` if MLflow is not installed, `ConfigError` if the address holds a password."""
    if PASSWORD_IN_URL.search(uri):
        raise ConfigError(
            "--mlflow holds a password in its address, which logs would show. Leave it out, and set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."
        )
    if find_spec("mlflow") is None:
        raise DeviceError("MLflow is not installed. Run `pip install 'sparkgpu[mlflow]'`.")


def predicted(model: FittedModel, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of ``sparkgpu predict`` for the rows of `frame`."""
    values = model.predict_proba(frame) if model.schema.classes else model.predict(frame)
    found: pd.DataFrame = pa.table(model.columns(values)).to_pandas()
    return found


def save_model(run_dir: Path, model: str, folder: Path) -> None:
    """Write a model of a run as an MLflow model, the blend included, and check it.

    Raises `TrialError` if MLflow predicts other values with it than `sparkgpu.load`.
    """
    import mlflow

    fitted = FittedModel(run_dir, model)
    with tempfile.TemporaryDirectory(prefix="sparkgpu-mlflow-") as needed:
        mlflow.pyfunc.save_model(path=str(folder), **_arguments(fitted, Path(needed)))
    example = example_of(fitted)
    again = mlflow.pyfunc.load_model(str(folder)).predict(example)
    names = [name for name in again.columns if name.startswith("probability_")] or ["prediction"]
    difference = np.abs(again[names].to_numpy() - predicted(fitted, example)[names].to_numpy()).max()
    if not difference <= _TOLERANCE * max(1.0, float(np.abs(again[names].to_numpy()).max())):
        raise TrialError(f"{folder}: MLflow predicts other values with this model, by {difference:.1e}.")


def log_run(run_dir: Path, uri: str) -> str:
    """Write a finished run to the tracking server or folder at `uri`. Returns the id of MLflow's run."""
    import mlflow

    paths = RunPaths(root=run_dir)
    results = read_results(paths)
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment(_EXPERIMENT)
    with mlflow.start_run(run_name=results.run.name) as run:
        mlflow.log_params(_parameters(paths))
        mlflow.set_tags({"target": results.data.target, "task": results.data.task})
        mlflow.log_metrics(dict(_metrics(results)))
        for trial in results.done():
            metric, points = read_curve(paths.trial(trial.name).learning_curve)
            for point in points:
                values = {"train": point.train, "valid": point.valid}
                known = {
                    f"{trial.name}.{metric}.{split}": value
                    for split, value in values.items()
                    if value is not None
                }
                mlflow.log_metrics(known, step=point.step)
        mlflow.log_artifacts(str(paths.report), "report")
        for file in (paths.metrics, paths.config):
            mlflow.log_artifact(str(file))
        if results.comparison.leader is not None:
            with tempfile.TemporaryDirectory(prefix="sparkgpu-mlflow-") as needed:
                arguments = _arguments(FittedModel(run_dir, BEST), Path(needed))
                mlflow.pyfunc.log_model(name="model", **arguments)
        return str(run.info.run_id)


def _arguments(fitted: FittedModel, needed: Path) -> dict[str, Any]:
    """The model holds this package, which no index has, and names the libraries that it needs."""
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types.schema import AnyType, ColSpec, Schema

    _copy_needed(RunPaths(root=fitted.run_dir), fitted.members, needed)
    (needed / NAME).write_text(fitted.name, encoding="utf-8")
    example = example_of(fitted)
    # The columns alone: a model reads numbers of any type, and texts, and says so where it cannot.
    inputs = Schema([ColSpec(AnyType(), str(name)) for name in fitted.feature_names_in_])
    return {
        "python_model": str(Path(__file__).with_name("mlflow_code.py")),
        "artifacts": {RUN: str(needed)},
        "code_paths": [str(Path(__file__).parents[1])],
        "signature": ModelSignature(inputs, infer_signature(example, predicted(fitted, example)).outputs),
        "input_example": example,
        "pip_requirements": _requirements(fitted),
    }


def _requirements(fitted: FittedModel) -> list[str]:
    names = set(_ALWAYS)
    for trial in finished_results(RunPaths(root=fitted.run_dir)).done():
        if trial.name in fitted.members:
            names |= _MODULES.get(trial.engine) or {ENGINES.find(trial.engine).module or ""}
    providing = packages_distributions()
    packages = sorted(providing[name][0] for name in names if name in providing)
    return [f"{package}=={version(package).partition('+')[0]}" for package in packages]


def _copy_needed(paths: RunPaths, trials: Iterable[str], folder: Path) -> None:
    """Copy ``metrics.json``, the table's schema, mean targets and words, and the models of these trials."""
    wanted = [paths.metrics, paths.schema]
    for name in (MEANS_FOLDER, TEXTS_FOLDER):
        wanted += (paths.table / name).glob("*.parquet")
    for trial in trials:
        wanted += paths.trial(trial).root.glob("model.*")
    for file in wanted:
        target = folder / file.relative_to(paths.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def example_of(fitted: FittedModel) -> pd.DataFrame:
    """A few rows of the run's test split as the user's columns; numbers are floats, so that gaps may come."""
    import pandas as pd

    paths = RunPaths(root=fitted.run_dir)
    rows = read_rows(paths, fitted.schema, "test").part(slice(_EXAMPLE_ROWS))
    columns: dict[str, Any] = {}
    for place, feature in enumerate(fitted.schema.numeric):
        if not feature.is_derived:
            _add_number(columns, feature, rows.numeric_NF[:, place])
    for place, feature in enumerate(fitted.schema.categorical):
        words = np.array([*feature.levels, None], dtype=object)
        found = pd.Series(words[rows.codes_NK[:, place]])
        columns[feature.source] = found.astype(float) if feature.type in WHOLE_TYPES else found
    return pd.DataFrame({name: columns[name] for name in fitted.feature_names_in_})


def _add_number(columns: dict[str, Any], feature: Feature, value_N: Any) -> None:
    import pandas as pd

    if feature.is_text:  # the table holds no texts
        columns[feature.source] = pd.Series([""] * len(value_N))
    elif feature.reading != "timestamp":
        columns[feature.source] = value_N.astype(np.float64)
    elif feature.part == "days since 1970":
        seconds_N = np.round(value_N.astype(np.float64) * _SECONDS_PER_DAY)
        columns[feature.source] = pd.to_datetime(pd.Series(seconds_N), unit="s")


def _parameters(paths: RunPaths) -> dict[str, str]:
    import pandas as pd

    (found,) = pd.json_normalize(tomllib.loads(paths.config.read_text(encoding="utf-8"))).to_dict("records")
    return {str(key): str(value)[:500] for key, value in found.items()}


def _metrics(results: Results) -> Iterator[tuple[str, float]]:
    for model in results.models:
        for split, values in (("valid", model.metrics.valid), ("test", model.metrics.test)):
            for metric, value in values.items():
                if value is not None:
                    yield f"{model.name}.{split}.{metric}", value
    yield "wall_s", results.run.wall_s
