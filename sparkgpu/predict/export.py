"""Writes one trained model in a format that other programs read, and checks what it wrote.

Each format is loaded again by what will read it, and must predict the run's test rows as the run did.

N rows, C classes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from sparkgpu.core.errors import ConfigError, DeviceError, TrialError
from sparkgpu.core.rundir.metrics_json import finished_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.predictions import read_predictions
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import read_schema
from sparkgpu.core.words import listed
from sparkgpu.predict.export_formats import FORMATS, Format, Trained
from sparkgpu.predict.exported_columns import means_of
from sparkgpu.predict.members import decision_of, intervals_of, model_name, weights_of
from sparkgpu.prepare.target_means import load_means
from sparkgpu.prepare.texts import text_features
from sparkgpu.score.calibration import scaled
from sparkgpu.score.predictions import align
from sparkgpu.trials.saved_model import largest_difference

MLFLOW = "mlflow"
_MOST_CHECKED = 50_000  # rows; a file that reads wrongly reads wrongly in the first of them


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
    if format == "onnx" and (texts := text_features(trained.schema.features)):
        raise ConfigError(
            f"--format onnx: such a file cannot read texts, and the model read {listed(map(repr, texts))} as "
            "such. "
            f"Choose one of {listed([*(one for one in fitting if one != format), MLFLOW])}."
        )
    if absent := [module for module in found.needs if find_spec(module) is None]:
        raise DeviceError(
            f"--format {format} needs {listed(absent)}, not installed here. Run "
            f"`pip install 'sparkgpu[{'export' if format == 'onnx' else 'trees'}]'`."
        )
    target = Path(out) if out else paths.root / "exports" / f"{trained.trial.name}{found.ending}"
    with _new(target, format, found.ending):
        found.write(trained, target)
        _check(paths, trained, found, target)
    return target


def notes_on(run_dir: str | Path, model: str, format: str) -> Iterator[str]:
    """What the run does with a model that a file of this format does not."""
    if format == MLFLOW:
        return
    results = finished_results(RunPaths(root=Path(run_dir).expanduser().resolve()))
    name = model_name(results, model, str(run_dir))
    (trial,) = weights_of(results, name)
    by = next(one.temperature for one in results.done() if one.name == trial)
    if format == "mojo" and by is not None:
        yield f"a MOJO gives probabilities at temperature 1; this run predicts at {by:.4f}."
    if decision := decision_of(results, name):
        yield f"the file gives probabilities; this run decides for {decision.in_words()}."
    if intervals_of(results, name):
        yield "the file holds no intervals or sets; sparkgpu predict, sparkgpu.load and MLflow give them."


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
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)
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
    paths.trial(trial).check()
    return Trained(
        folder=paths.trial(trial).root,
        schema=(schema := read_schema(paths)),
        means=means_of(load_means(paths.table, schema.features)),
        trial=next(one for one in results.done() if one.name == trial),
    )


def _check(paths: RunPaths, trained: Trained, found: Format, file: Path) -> None:
    rows = read_rows(paths, trained.schema, "test")
    trial = paths.trial(trained.trial.name)
    file_kept = trial.refitted if trial.refitted.exists() else trial.predictions
    kept = read_predictions(file_kept, trained.schema)["test"]
    expected = align(rows.row_id_N, *kept)[:_MOST_CHECKED]
    again = found.predict(file, trained, rows.part(slice(_MOST_CHECKED)))
    if trained.temperature > 1:  # which enlarges what a float32 near 1 lost, in the run or in the file
        expected, again = (scaled(values, 1 / trained.temperature) for values in (expected, again))
    difference = largest_difference(expected, again)
    if not difference <= found.tolerance:
        raise TrialError(
            f"{file}: its predictions of the test rows differ by {difference:.1e} from those of the run, "
            f"more than {found.tolerance:.0e}. It was removed."
        )
