"""Compares `sparkgpu run` with LightGBM, XGBoost and, if asked, CatBoost and AutoGluon, on the same rows.

    python benchmarks/against.py DATA_FOLDER [--tables adult name:target ...] [--preset fast] [--seeds 3]
                                 [--runs FOLDER] [--elsewhere VENV] [--also NAMES] [--time-limit TIME]
                                 [--set KEY=VALUE]...

A table is a Parquet file in `DATA_FOLDER`; those of the default list need no target, any other is given as
`name:target`. Each is one
`sparkgpu run` with one repeat per seed. Its folder stays in `--runs`, and a table that is there is not
trained again. LightGBM gets exactly the rows of that run: once with its defaults, and once with learning rate
.05, 63 leaves and early stopping on the validation rows (50 trees without gain), for at most as many seconds
as the run took; XGBoost gets its defaults with learning rate .05 and the same limits. For each model it
prints the primary metric and the accuracy (if any) on the test rows, and the seconds. Below each stands how
sparkgpu differs from it, by its own scorer: the difference and its 95 % interval, for the trees of each seed
and for the blend of all seeds.

With `--elsewhere` CatBoost (its defaults, stopped early) and AutoGluon's `medium_quality` fit the same rows
within the same seconds in the virtual environment VENV, which is made (several GB) if it is not there;
`--libraries` chooses among them. `autogluon-best` is AutoGluon's `best_quality`, which gets the training and
the validation rows together, since it validates by folds of its own. With `--time-limit` a run has as many
seeds as fit, and the others get the limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xgboost
from numpy.typing import NDArray

from sparkgpu.core.rundir.metrics_json import Results, read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.predictions import read_predictions
from sparkgpu.core.table.rows import Rows, read_rows
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.score import blend, metrics
from sparkgpu.score.compare import compare

TARGETS = {
    "adult": "income", "california_housing": "MedHouseVal", "diamonds": "price", "letter": "target",
    "covertype": "Cover_Type", "ames_housing": "Sale_Price", "nycflights_delay": "arr_delay",
    "german_credit": "credit_risk",
}  # fmt: skip
_PATIENCE = 50
_MOST_TIMES = 3
_ELSEWHERE = {
    "catboost": "CatBoost, stopped early",
    "autogluon": "AutoGluon, medium_quality",
    "autogluon-best": "AutoGluon best, best_quality",
}
_OBJECTIVES = {"binary": "binary:logistic", "multiclass": "multi:softprob", "regression": "reg:squarederror"}
_MOST_TREES = 10_000


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A model's predictions of the test rows, and the seconds it took."""

    name: str
    prediction: NDArray[np.float64]
    seconds: float


def features(rows: Rows) -> NDArray[np.float64]:
    """Numbers and codes side by side, NaN for missing."""
    codes_NK = np.where(rows.codes_NK < 0, np.nan, rows.codes_NK)
    return np.hstack([rows.numeric_NF.astype(np.float64), codes_NK])


def fit_lightgbm(schema: TableSchema, rows: dict[str, Rows], seed: int, seconds: float | None) -> Fitted:
    """LightGBM with its defaults or, with `seconds`, slowly: the validation rows or the time stop it."""
    kind = lightgbm.LGBMClassifier if schema.classes else lightgbm.LGBMRegressor
    settings: dict[str, Any] = {"verbose": -1, "random_state": seed}
    fitting: dict[str, Any] = {}
    x = {split: features(found) for split, found in rows.items()}
    start = time.perf_counter()
    if seconds is not None:
        settings |= {"learning_rate": 0.05, "num_leaves": 63, "n_estimators": _MOST_TREES}
        fitting |= {"eval_X": (x["valid"],), "eval_y": (rows["valid"].label_N,)}
        fitting["callbacks"] = [lightgbm.early_stopping(_PATIENCE, verbose=False), _until(start + seconds)]
    model = kind(**settings)
    categorical = list(range(len(schema.numeric), x["train"].shape[1]))
    model.fit(x["train"], rows["train"].label_N, categorical_feature=categorical, **fitting)
    predict = model.predict_proba if schema.classes else model.predict
    prediction = np.asarray(predict(x["test"]), dtype=np.float64)
    name = "LightGBM, defaults" if seconds is None else "LightGBM, .05, 63 leaves, stopped early"
    return Fitted(name=name, prediction=prediction, seconds=time.perf_counter() - start)


def fit_xgboost(schema: TableSchema, rows: dict[str, Rows], seed: int, seconds: float) -> Fitted:
    """XGBoost's defaults with its own way with categories, learning rate .05, stopped early or by time."""
    kinds = ["q"] * len(schema.numeric) + ["c"] * len(schema.categorical)
    start = time.perf_counter()
    tables = {
        split: xgboost.DMatrix(features(found), found.label_N, feature_types=kinds, enable_categorical=True)
        for split, found in rows.items()
    }
    classes = {"num_class": len(schema.classes)} if schema.task == "multiclass" else {}
    model = xgboost.train(
        {"objective": _OBJECTIVES[schema.task], "eta": 0.05, "seed": seed, **classes},
        tables["train"],
        _MOST_TREES,
        evals=[(tables["valid"], "valid")],
        early_stopping_rounds=_PATIENCE,
        verbose_eval=False,
        callbacks=[_Until(start + seconds)],
    )
    prediction = model.predict(tables["test"], iteration_range=(0, model.best_iteration + 1))
    if schema.task == "binary":
        prediction = np.stack([1 - prediction, prediction], axis=1)
    took = time.perf_counter() - start
    return Fitted(name="XGBoost, .05, stopped early", prediction=prediction.astype(np.float64), seconds=took)


def fit_elsewhere(
    library: str, schema: TableSchema, rows: dict[str, Rows], seconds: float, venv: Path
) -> Fitted | None:
    """AutoGluon or CatBoost in an environment of their own, with words for categories.

    None if it takes far longer than the seconds that it was told.
    """
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        wanted = "autogluon.tabular[lightgbm,catboost,xgboost,fastai]"
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", wanted], check=True)
    script = Path(__file__).with_name("against_elsewhere.py")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "task").write_text(schema.task)
        for split, found in rows.items():
            columns: dict[str, Any] = {
                feature.name: found.numeric_NF[:, place] for place, feature in enumerate(schema.numeric)
            }
            for place, feature in enumerate(schema.categorical):
                words = np.array([*feature.levels, None], dtype=object)  # code -1 is a missing value
                columns[feature.name] = pa.array(words[found.codes_NK[:, place]].tolist(), pa.string())
            pq.write_table(pa.table({**columns, "label": found.label_N}), folder / f"{split}.parquet")
        start = time.perf_counter()
        command = [str(python), str(script), temporary, library, str(seconds)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_MOST_TIMES * seconds)
        except subprocess.TimeoutExpired:
            print(f"  {_ELSEWHERE[library]}: not done in {_MOST_TIMES} times the seconds of the run")
            return None
        took = time.perf_counter() - start
        prediction = np.load(folder / "prediction.npy")
    return Fitted(name=_ELSEWHERE[library], prediction=prediction, seconds=took)


class _Until(xgboost.callback.TrainingCallback):
    """Ends XGBoost's training at this moment of the performance counter."""

    def __init__(self, end: float) -> None:
        super().__init__()
        self._end = end

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return time.perf_counter() > self._end


def _until(end: float) -> Callable[[Any], None]:
    """A callback that ends the training at this moment of the performance counter, with its best trees."""

    def stop(env: Any) -> None:
        if time.perf_counter() > end:
            raise lightgbm.callback.EarlyStopException(env.iteration, env.evaluation_result_list)

    return stop


def of_run(paths: RunPaths, schema: TableSchema, results: Results) -> dict[str, NDArray[np.float64]]:
    """The test predictions of each seed's trees, and of the blend of all seeds if there is one."""
    predictions = {
        trial.name: read_predictions(paths.trial(trial.name).predictions, schema)["test"][1]
        for trial in results.done()
    }
    trees = {trial.name: predictions[trial.name] for trial in results.done("trees")}
    weights = next((model.weights for model in results.models if model.name == "blend"), None)
    if not weights:
        return trees
    models = {
        model: np.mean([predictions[trial.name] for trial in results.done(model)], axis=0)
        for model in weights
    }
    return {**trees, "blend": blend.blend(models, weights)}


def report(table: str, options: argparse.Namespace) -> None:
    """Train on one table, unless it is there, and print its rows."""
    name, _, target = table.partition(":")
    paths = RunPaths(root=options.runs / name)
    if not paths.metrics.exists():
        command = [
            sys.executable, "-m", "sparkgpu", "run", str(options.data / f"{name}.parquet"), "--quiet",
            "--target", target or TARGETS[name], "--preset", options.preset, "--out", str(paths.root),
        ]  # fmt: skip
        command += (
            ["--time-limit", options.time_limit] if options.time_limit else ["--repeats", str(options.seeds)]
        )
        command += ["--also", options.also] if options.also else []
        for text in options.assignments:
            command += ["--set", text]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    schema, results = read_schema(paths), read_results(paths)
    fold = {"train": 0, "valid": 0} if schema.folds else {}  # one fold's rows stop the others
    rows = {
        split: read_rows(paths, schema, split, fold=fold.get(split)) for split in ("train", "valid", "test")
    }
    seed = results.trials[0].seed
    label_N = rows["test"].label_N
    shown = [results.comparison.metric, *(["accuracy"] if schema.classes else [])]
    seconds = results.run.time_limit_s or results.run.wall_s
    seeds = len({trial.seed for trial in results.trials})
    print(f"{name}: {results.run.wall_s:.0f} s, {seeds} seeds")
    for model in results.models:
        if not results.done(model.name) and model.name != "blend":
            continue
        cells = []
        for metric in shown:
            spread = model.std.test.get(metric)
            cells.append(
                f"{metric} {model.metrics.test[metric]:.5g}" + (f" ± {spread:.2g}" if spread else "")
            )
        fit_s = [trial.fit_s for trial in results.done(model.name)]
        took = f", {sum(fit_s) / len(fit_s):.1f} s a fit" if fit_s else ""
        print(f"  {model.name}: {', '.join(cells)}{took}")
    own = of_run(paths, schema, results)
    others: list[Callable[[], Fitted | None]] = [
        lambda: fit_lightgbm(schema, rows, seed, None),
        lambda: fit_lightgbm(schema, rows, seed, seconds),
        lambda: fit_xgboost(schema, rows, seed, seconds),
    ]
    if options.elsewhere:
        others += [
            partial(fit_elsewhere, library, schema, rows, seconds, options.elsewhere)
            for library in options.libraries
        ]
    for fit in others:
        other = fit()
        if other is None:
            continue
        found = metrics.compute(schema.task, label_N, other.prediction)
        cells = [f"{metric} {found[metric]:.5g}" for metric in shown]
        print(f"  {other.name}: {', '.join(cells)}, {other.seconds:.1f} s")
        for model, prediction in own.items():
            pair = compare(schema.task, label_N, prediction, other.prediction, seed)
            print(f"    {pair.sentence(model, other.name.partition(',')[0])}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--tables", nargs="*", default=list(TARGETS), metavar="TABLE")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("against"))
    parser.add_argument("--elsewhere", type=Path, metavar="VENV")
    parser.add_argument("--libraries", nargs="*", default=["catboost", "autogluon"], choices=list(_ELSEWHERE))
    parser.add_argument("--also", metavar="NAMES")
    parser.add_argument("--time-limit", metavar="TIME")
    parser.add_argument("--set", dest="assignments", action="append", default=[])
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    for table in options.tables:
        report(table, options)


if __name__ == "__main__":
    main()
