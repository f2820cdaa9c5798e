"""Writes one trained model in a format that other programs read, and checks what it wrote.

Each format is loaded again by what will read it, and must predict the run's test rows as the run did.

N rows, C classes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.errors import ConfigError, DeviceError, TrialError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.results import DoneTrial, finished_results
from sparkgpu.core.table.predictions import read_predictions
from sparkgpu.core.table.rows import Rows, read_rows
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.core.words import listed
from sparkgpu.predict.members import model_name, weights_of
from sparkgpu.score.calibration import scaled
from sparkgpu.score.predictions import align
from sparkgpu.trials.engine import Model, load_fitted
from sparkgpu.trials.saved_model import largest_difference

MLFLOW = "mlflow"
_MOST_CHECKED = 50_000  # rows; a file that reads wrongly reads wrongly in the first of them


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trial to export: its files, its table, and how it was trained."""

    folder: Path
    schema: TableSchema
    trial: DoneTrial

    def load(self) -> Model:
        """The model as sparkgpu applies it."""
        return load_fitted(self.trial.engine, self.folder, self.schema)


Write = Callable[[Trained, Path], None]
Predict = Callable[[Path, Trained, Rows], NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format: the engines that have it, its ending, and how far a prediction may be from the run's.

    `write` makes the file or folder, `predict` applies it to rows of the run's table as another program
    would. `needs` are the modules for both, and `extra` the extra of sparkgpu that installs them.
    """

    engines: tuple[str, ...]
    ending: str
    tolerance: float
    write: Write
    predict: Predict
    needs: tuple[str, ...] = ()
    extra: str = ""


def export(run_dir: str | Path, model: str, format: str, out: str | Path | None = None) -> Path:
    """Write a model of a run in another format, and check it. Returns the new file or folder.

    Without `out` it becomes ``exports/<trial>.<ending>`` in the run directory. Raises `ConfigError` if the
    run has no such model, or its engine no such format, `DeviceError` if a package is not installed, and
    `TrialError` if the written file predicts other values.
    """
    paths = RunPaths(root=Path(run_dir).expanduser().resolve())
    if format == MLFLOW:
        return _export_mlflow(paths, model, str(run_dir), out)
    trained = _find(paths, model, str(run_dir))
    found = FORMATS.get(format)
    fitting = [name for name, one in FORMATS.items() if trained.trial.engine in one.engines]
    if found is None or format not in fitting:
        raise ConfigError(
            f"--format {format}: a model of {trained.trial.engine} has no such format. Choose one of "
            f"{listed([*fitting, MLFLOW])}."
        )
    _check_packages(format, found)
    target = Path(out) if out else paths.root / "exports" / f"{trained.trial.name}{found.ending}"
    with _new(target, format, found.ending):
        found.write(trained, target)
        _check(paths, trained, found, target)
    return target


def temperature_of(run_dir: str | Path, model: str) -> float | None:
    """The temperature at which the run predicts with a model, which an exported file does not contain."""
    results = finished_results(RunPaths(root=Path(run_dir).expanduser().resolve()))
    members = weights_of(results, model_name(results, model, str(run_dir)))
    return next((trial.temperature for trial in results.done() if trial.name in members), None)


def _export_mlflow(paths: RunPaths, model: str, where: str, out: str | Path | None) -> Path:
    """Any model, the blend included, with the files of the run that it needs."""
    from sparkgpu.predict.mlflow_model import check_mlflow, save_model

    check_mlflow()
    name = model_name(finished_results(paths), model, where)
    target = Path(out) if out else paths.root / "exports" / f"{name}-mlflow"
    with _new(target, MLFLOW, ""):
        save_model(paths.root, name, target)
    return target


@contextmanager
def _new(target: Path, format: str, ending: str) -> Iterator[None]:
    """Make room for a new file or folder; it is removed if the block fails."""
    if target.suffix != ending:
        wanted = f"must end with {ending}" if ending else "is a folder and must have no ending"
        raise ConfigError(f"--out {target}: with --format {format} it {wanted}.")
    if target.exists():
        raise ConfigError(f"{target}: it exists. Give another name with --out, or remove it.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except PermissionError as error:
        raise ConfigError(
            f"{error.filename}: you may not write there. Give another place with --out."
        ) from None
    except BaseException:
        _remove(target)
        raise


def _find(paths: RunPaths, model: str, where: str) -> Trained:
    results = finished_results(paths)
    name = model_name(results, model, where)
    members = weights_of(results, name)
    if len(members) > 1:
        raise ConfigError(
            f"model {name!r}: it is a mean of {listed(members)}, and a file holds one of them. Name one."
        )
    (trial,) = members
    return Trained(
        folder=paths.trial(trial).root,
        schema=read_schema(paths),
        trial=next(one for one in results.done() if one.name == trial),
    )


def _check_packages(format: str, found: Format) -> None:
    absent = [module for module in found.needs if find_spec(module) is None]
    if absent:
        raise DeviceError(
            f"--format {format} needs {listed(absent)}, not installed here. Run "
            f"`pip install 'sparkgpu[{found.extra}]'`."
        )


def _check(paths: RunPaths, trained: Trained, found: Format, file: Path) -> None:
    rows = read_rows(paths, trained.schema, "test")
    kept = read_predictions(paths.trial(trained.trial.name).predictions, trained.schema)["test"]
    expected = align(rows.row_id_N, *kept)[:_MOST_CHECKED]
    again = found.predict(file, trained, rows.part(slice(_MOST_CHECKED)))
    if trained.trial.temperature is not None:  # which the run's predictions have
        again = scaled(again, trained.trial.temperature)
    difference = largest_difference(expected, again)
    if not difference <= found.tolerance:
        raise TrialError(
            f"{file}: its predictions of the test rows differ by {difference:.1e} from those of the run, "
            f"more than {found.tolerance:.0e}. It was removed."
        )


def _remove(target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target, ignore_errors=True)
    else:
        target.unlink(missing_ok=True)


def _write_mojo(trained: Trained, file: Path) -> None:
    from sparkgpu.h2o.mojo import MOJO

    shutil.copyfile(trained.folder / MOJO, file)


def _predict_mojo(file: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    """By H2O's own scoring library, in Java."""
    from sparkgpu.h2o.mojo import MojoModel

    return MojoModel(file, trained.schema).predict(rows)


def _write_booster(trained: Trained, file: Path) -> None:
    from sparkgpu.h2o.mojo import MOJO
    from sparkgpu.h2o.mojo_booster import BoosterModel
    from sparkgpu.trees.xgboost_library import XGBOOST_FILE

    if trained.trial.engine == "xgboost":
        shutil.copyfile(trained.folder / XGBOOST_FILE, file)
    else:
        BoosterModel(trained.folder / MOJO, trained.schema).save(file)


def _predict_booster(file: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    import xgboost

    from sparkgpu.h2o.mojo import MOJO
    from sparkgpu.h2o.mojo_booster import BoosterModel
    from sparkgpu.trees.boosting import both_classes, feature_frame

    booster = xgboost.Booster(model_file=file)
    if trained.trial.engine == "xgboost":
        data = xgboost.DMatrix(feature_frame(rows, trained.schema), enable_categorical=True)
    else:
        matrix = BoosterModel(trained.folder / MOJO, trained.schema).matrix(rows)
        data = xgboost.DMatrix(matrix, feature_names=booster.feature_names)
    return both_classes(booster.predict(data), trained.schema)


def _write_lightgbm(trained: Trained, file: Path) -> None:
    from sparkgpu.trees.lightgbm_library import LIGHTGBM_FILE

    shutil.copyfile(trained.folder / LIGHTGBM_FILE, file)


def _predict_lightgbm(file: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    import lightgbm

    from sparkgpu.trees.boosting import both_classes, feature_frame

    found = lightgbm.Booster(model_file=file).predict(feature_frame(rows, trained.schema))
    return both_classes(np.asarray(found), trained.schema)


def _write_catboost(trained: Trained, file: Path) -> None:
    from sparkgpu.trees.catboost_library import CATBOOST_FILE

    shutil.copyfile(trained.folder / CATBOOST_FILE, file)


def _predict_catboost(file: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    from sparkgpu.trees.boosting import feature_frame
    from sparkgpu.trees.catboost_library import predictions_of_file

    return predictions_of_file(file, feature_frame(rows, trained.schema), trained.schema)


def _write_torch(trained: Trained, folder: Path) -> None:
    from sparkgpu.neural.model import TENSORS

    folder.mkdir()
    for name in (TENSORS, "model.json"):
        shutil.copyfile(trained.folder / name, folder / name)


def _predict_torch(folder: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    from sparkgpu.neural.model import load_model

    return load_model(folder).predict(rows)


def _write_onnx(trained: Trained, file: Path) -> None:
    if trained.trial.engine == "h2o-xgboost":
        from sparkgpu.h2o.mojo import MOJO
        from sparkgpu.h2o.mojo_booster import BoosterModel
        from sparkgpu.predict.export_onnx_trees import trees_as_onnx

        trees_as_onnx(BoosterModel(trained.folder / MOJO, trained.schema), trained.schema, file)
        return
    from sparkgpu.neural.model import load_model
    from sparkgpu.predict.export_onnx import network_as_onnx

    network_as_onnx(load_model(trained.folder), trained.schema, file)


def _predict_onnx(file: Path, trained: Trained, rows: Rows) -> NDArray[np.float64]:
    """By onnxruntime, from numbers and words."""
    import onnxruntime  # type: ignore[import-untyped]

    from sparkgpu.predict.onnx_columns import input_name

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    feed: dict[str, NDArray[Any]] = {}
    for place, feature in enumerate(trained.schema.numeric):
        feed[input_name(feature)] = rows.numeric_NF[:, [place]]
    for place, feature in enumerate(trained.schema.categorical):
        words = np.array([*feature.levels, ""], dtype=object)
        feed[input_name(feature)] = words[rows.codes_NK[:, [place]]]
    size = 4_096  # of a batch: the first layers are wide
    parts = [
        session.run(None, {name: values[begin : begin + size] for name, values in feed.items()})[0]
        for begin in range(0, len(rows.row_id_N), size)
    ]
    return np.concatenate(parts)


FORMATS: Mapping[str, Format] = {
    "mojo": Format(
        engines=("h2o-xgboost",), ending=".zip", tolerance=1e-6, write=_write_mojo, predict=_predict_mojo
    ),
    "xgboost": Format(
        engines=("h2o-xgboost", "xgboost"), ending=".ubj", tolerance=1e-6,
        write=_write_booster, predict=_predict_booster, needs=("xgboost",), extra="xgboost",
    ),
    "lightgbm": Format(
        engines=("lightgbm",), ending=".txt", tolerance=1e-6,
        write=_write_lightgbm, predict=_predict_lightgbm, needs=("lightgbm",), extra="lightgbm",
    ),
    "catboost": Format(
        engines=("catboost",), ending=".cbm", tolerance=1e-6,
        write=_write_catboost, predict=_predict_catboost, needs=("catboost",), extra="catboost",
    ),
    "torch": Format(
        engines=("torch",), ending="", tolerance=1e-5, write=_write_torch, predict=_predict_torch
    ),
    "onnx": Format(
        engines=("torch", "h2o-xgboost"), ending=".onnx", tolerance=1e-4,
        write=_write_onnx, predict=_predict_onnx,
        needs=("onnx", "onnxscript", "onnxruntime"), extra="onnx",
    ),
}  # fmt: skip
