"""Trains networks with their presets on published splits and prints test metrics beside LightGBM's defaults.

    python benchmarks/networks.py DATA_FOLDER [--tables adult california_housing ...] [--preset fast]
                                  [--seeds 3] [--set KEY=VALUE]...

`DATA_FOLDER` holds adult.parquet, california_housing.parquet, diamonds.parquet and letter.parquet. Each table
is one `sparkgpu run` with one repeat per seed. LightGBM with its defaults is fitted on the rows of that run.
The row order gives the split of adult (test from row 32,561 on) and california_housing (validation from
13,209, test from 16,512 on); `sparkgpu run` splits the others at random. RMSE is in the target's unit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lightgbm
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import accuracy_score, roc_auc_score, root_mean_squared_error

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.results import read_results
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import read_schema

TARGETS = {
    "adult": "income", "california_housing": "MedHouseVal", "diamonds": "price", "letter": "target",
}  # fmt: skip
SPLIT_COLUMN = "published split"


def with_published_split(table: pa.Table, name: str) -> pa.Table | None:
    """The table with a column that names each row's split, or None if no split is published."""
    rows = np.arange(table.num_rows)
    if name == "adult":
        split = np.where(rows < 32_561, "train", "test")
    elif name == "california_housing":
        split = np.where(rows < 13_209, "train", np.where(rows < 16_512, "valid", "test"))
    else:
        return None
    return table.append_column(SPLIT_COLUMN, pa.array(split))


def lightgbm_defaults(paths: RunPaths) -> dict[str, float]:
    """Test metrics of LightGBM with its defaults, on the run's own rows."""
    schema = read_schema(paths)
    train, test = read_rows(paths, schema, "train"), read_rows(paths, schema, "test")
    numeric = len(schema.numeric)
    x_train, x_test = (np.hstack([rows.numeric_NF, rows.codes_NK]).astype(float) for rows in (train, test))
    categorical = list(range(numeric, x_train.shape[1]))
    for x in (x_train, x_test):
        x[:, numeric:][x[:, numeric:] < 0] = np.nan
    if schema.task == "regression":
        regressor = lightgbm.LGBMRegressor(verbose=-1)
        regressor.fit(x_train, train.label_N, categorical_feature=categorical)
        return {"rmse": float(root_mean_squared_error(test.label_N, regressor.predict(x_test)))}
    model = lightgbm.LGBMClassifier(verbose=-1)
    model.fit(x_train, train.label_N, categorical_feature=categorical)
    probability = np.asarray(model.predict_proba(x_test))
    found = {"accuracy": float(accuracy_score(test.label_N, probability.argmax(1)))}
    if schema.task == "binary":
        found["roc_auc"] = float(roc_auc_score(test.label_N, probability[:, 1]))
    return found


def run(name: str, options: argparse.Namespace, folder: Path) -> None:
    """Train on one table and print a line for each model."""
    table = pq.read_table(options.data / f"{name}.parquet")
    command = [sys.executable, "-m", "sparkgpu", "run", "--quiet", "--target", TARGETS[name]]
    command += ["--preset", options.preset, "--repeats", str(options.seeds), "--out", str(folder / name)]
    split = with_published_split(table, name)
    if split is not None:
        command += ["--set", "split.kind=column", "--set", f"split.column={SPLIT_COLUMN}"]
    pq.write_table(table if split is None else split, folder / f"{name}.parquet")
    for text in options.assignments:
        command += ["--set", text]
    start = time.perf_counter()
    subprocess.run([*command, str(folder / f"{name}.parquet")], check=True, stdout=subprocess.DEVNULL)
    paths = RunPaths(root=folder / name)
    results = read_results(paths)
    plain = lightgbm_defaults(paths)
    print(f"{name}, preset {options.preset}, {options.seeds} seeds, {time.perf_counter() - start:.0f} s")
    for model in results.models:
        cells = (
            f"{metric} {model.metrics.test[metric]:.4f} ± {model.std.test.get(metric) or 0:.4f}"
            for metric in plain
        )
        print(f"  {model.name}: {', '.join(cells)}")
    print(f"  LightGBM, defaults: {', '.join(f'{metric} {value:.4f}' for metric, value in plain.items())}")
    for pair in results.comparison.pairs:
        print(f"  {pair.sentence}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tables", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="assignments", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.tables:
            run(name, options, Path(folder))


if __name__ == "__main__":
    main()
