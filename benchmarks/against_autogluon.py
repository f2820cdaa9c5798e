"""Fits AutoGluon on prepared rows: ``python against_autogluon.py FOLDER SECONDS``, where it is installed.

`benchmarks/against.py --autogluon` makes such an environment. It writes ``train``, ``valid`` and ``test`` as
Parquet with a column ``label`` to the folder, and the task to ``task``. Predictions of the test rows go to
``prediction.npy``: values (N,), or probabilities (N, C) in the order of the classes' codes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from autogluon.tabular import TabularPredictor

_METRICS = {"binary": "roc_auc", "multiclass": "log_loss", "regression": "root_mean_squared_error"}


def main() -> None:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    task = (folder / "task").read_text()
    rows = {split: pd.read_parquet(folder / f"{split}.parquet") for split in ("train", "valid", "test")}
    predictor = TabularPredictor(
        label="label", problem_type=task, eval_metric=_METRICS[task], path=str(folder / "models"), verbosity=0
    )
    predictor.fit(rows["train"], tuning_data=rows["valid"], presets="medium_quality", time_limit=seconds)
    features = rows["test"].drop(columns="label")
    if task == "regression":
        found = predictor.predict(features).to_numpy()
    else:
        shares = predictor.predict_proba(features)
        found = shares[sorted(shares.columns)].to_numpy()
    np.save(folder / "prediction.npy", found.astype(np.float64))


if __name__ == "__main__":
    main()
