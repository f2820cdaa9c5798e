"""How often intervals and sets hold the truth if the rows that they are fitted to also stopped the training.

``python benchmarks/coverage.py --out coverage.csv FILE:TARGET...``: trees of LightGBM and a network of
scikit-learn keep their best step on the validation rows, which also weight their blend; then each is measured
on the test rows, in ten splits. Tables with more rows are cut to a fixed draw of `--rows`.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from sklearn.neural_network import MLPClassifier, MLPRegressor

from sparkgpu.score.blend import blend, blend_weights
from sparkgpu.score.conformal import calibrated, measured
from sparkgpu.score.metrics import mean_loss

EPOCHS, TREES, PATIENCE = 15, 300, 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--intervals", type=float, default=0.9)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    lines: list[dict[str, Any]] = []
    for split in range(asked.splits):
        for table in asked.tables:
            file, _, target = table.rpartition(":")
            frame = pd.read_parquet(file)
            frame = frame.sample(min(len(frame), asked.rows), random_state=0)
            lines += of_split(
                frame, target, split, asked.intervals, {"table": Path(file).stem, "split": split}
            )
            pd.DataFrame(lines).to_csv(asked.out, index=False)


def of_split(
    frame: pd.DataFrame, target: str, seed: int, coverage: float, about: dict[str, Any]
) -> list[dict[str, Any]]:
    X, y = frame.drop(columns=target).select_dtypes(exclude="datetime"), frame[target]
    is_number = pd.api.types.is_float_dtype(y) or y.nunique() > 30
    task: Any = "regression" if is_number else "binary" if y.nunique() == 2 else "multiclass"
    label_N = y.to_numpy(float) if is_number else pd.factorize(y, sort=True)[0]
    for name in X.select_dtypes(exclude="number"):
        X[name] = X[name].astype(str).astype("category")
    order_N = np.random.default_rng(seed).permutation(len(X))
    cuts = int(0.7 * len(X)), int(0.85 * len(X))
    train, valid, test = np.split(order_N, cuts)
    models = {
        "trees": trees(X, label_N, task, train, valid, test, seed),
        "network": network(X, label_N, task, train, valid, test, seed),
    }
    weights = blend_weights(task, label_N[valid], {name: found[0] for name, found in models.items()})
    models["blend"] = tuple(
        blend({name: found[k] for name, found in models.items()}, weights) for k in (0, 1)
    )
    lines = []
    for name, (at_valid, at_test) in models.items():
        found = measured(
            task, calibrated(task, coverage, label_N[valid], at_valid), label_N[test], at_test, []
        )
        lines.append(
            {
                **about, "model": name, "asked": coverage, "valid_rows": len(valid), "test_rows": len(test),
                "coverage": found.test.coverage, "width": found.test.width, "empty": found.empty,
            }
        )  # fmt: skip
    return lines


def trees(X: Any, label_N: Any, task: str, train: Any, valid: Any, test: Any, seed: int) -> Any:
    kind = lightgbm.LGBMRegressor if task == "regression" else lightgbm.LGBMClassifier
    model = kind(n_estimators=TREES, learning_rate=0.1, random_state=seed, n_jobs=1, verbose=-1)
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    model.fit(X.iloc[train], label_N[train], eval_set=[(X.iloc[valid], label_N[valid])], callbacks=[stop])
    predict = model.predict if task == "regression" else model.predict_proba
    return predict(X.iloc[valid]), predict(X.iloc[test])


def network(X: Any, label_N: Any, task: str, train: Any, valid: Any, test: Any, seed: int) -> Any:
    found = pd.get_dummies(X).astype(float)
    found = (found - found.iloc[train].mean()) / found.iloc[train].std().replace(0, 1)
    at = [found.iloc[one].fillna(0).clip(-5, 5).to_numpy() for one in (train, valid, test)]
    middle, scale = (label_N[train].mean(), label_N[train].std()) if task == "regression" else (0, 1)
    settings: Any = {"hidden_layer_sizes": (64,), "random_state": seed, "learning_rate_init": 3e-3}
    model = MLPRegressor(**settings) if task == "regression" else MLPClassifier(**settings)
    best: Any = (np.inf, None)
    for _ in range(EPOCHS):
        if task == "regression":
            model.partial_fit(at[0], (label_N[train] - middle) / scale)
            found = [model.predict(one) * scale + middle for one in at[1:]]
        else:
            model.partial_fit(at[0], label_N[train], classes=np.unique(label_N))
            found = [model.predict_proba(one) for one in at[1:]]
        loss = mean_loss(task, label_N[valid], found[0])
        best = min(best, (loss, found), key=lambda one: one[0])
    return best[1]


if __name__ == "__main__":
    main()
