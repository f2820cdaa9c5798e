"""Fits AutoGluon or CatBoost on prepared rows: ``python against_elsewhere.py FOLDER LIBRARY SECONDS``.

`benchmarks/against.py --elsewhere` makes an environment that has both. It writes ``train``, ``valid`` and
``test`` as Parquet with a column ``label`` to the folder, and the task to ``task``. Predictions of the test
rows go to ``prediction.npy``: values (N,), or probabilities (N, C) in the order of the classes' codes.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

_METRICS = {"binary": "roc_auc", "multiclass": "log_loss", "regression": "root_mean_squared_error"}
_MOST_TREES = 10_000
_PATIENCE = 50


def fit_autogluon(
    folder: Path, task: str, rows: dict[str, pd.DataFrame], seconds: float, *, best: bool = False
) -> np.ndarray:
    """`medium_quality`, tuned by the validation rows, or `best_quality` on all but the test rows."""
    from autogluon.tabular import TabularPredictor

    predictor = TabularPredictor(
        label="label", problem_type=task, eval_metric=_METRICS[task], path=str(folder / "models"), verbosity=0
    )
    if best:
        known = pd.concat([rows["train"], rows["valid"]], ignore_index=True)
        predictor.fit(known, presets="best_quality", time_limit=seconds)
    else:
        predictor.fit(rows["train"], tuning_data=rows["valid"], presets="medium_quality", time_limit=seconds)
    features = rows["test"].drop(columns="label")
    if task == "regression":
        return predictor.predict(features).to_numpy()
    shares = predictor.predict_proba(features)
    return shares[sorted(shares.columns)].to_numpy()


def fit_catboost(folder: Path, task: str, rows: dict[str, pd.DataFrame], seconds: float) -> np.ndarray:
    """The defaults, but with as many trees as the validation rows want and the time allows."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    words = [name for name in rows["train"] if not pd.api.types.is_numeric_dtype(rows["train"][name])]
    x = {split: found.drop(columns="label") for split, found in rows.items()}
    for found in x.values():
        found[words] = found[words].astype(object).where(found[words].notna(), "")
    kind = CatBoostRegressor if task == "regression" else CatBoostClassifier
    model = kind(
        iterations=_MOST_TREES, verbose=False, train_dir=str(folder / "catboost"), cat_features=words
    )
    model.fit(
        x["train"],
        rows["train"]["label"],
        eval_set=(x["valid"], rows["valid"]["label"]),
        early_stopping_rounds=_PATIENCE,
        callbacks=[_Until(time.perf_counter() + seconds)],
    )
    return model.predict(x["test"]) if task == "regression" else model.predict_proba(x["test"])


class _Until:
    """Ends CatBoost's training at this moment of the performance counter."""

    def __init__(self, end: float) -> None:
        self._end = end

    def after_iteration(self, info: object) -> bool:
        return time.perf_counter() < self._end


_FITS = {
    "autogluon": fit_autogluon,
    "autogluon-best": partial(fit_autogluon, best=True),
    "catboost": fit_catboost,
}


def main() -> None:
    folder, library, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    task = (folder / "task").read_text()
    rows = {split: pd.read_parquet(folder / f"{split}.parquet") for split in ("train", "valid", "test")}
    found = _FITS[library](folder, task, rows, seconds)
    np.save(folder / "prediction.npy", np.asarray(found, dtype=np.float64))


if __name__ == "__main__":
    main()
