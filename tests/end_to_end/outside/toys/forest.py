"""An engine: a random forest of scikit-learn."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import log_loss, root_mean_squared_error

from sparkgpu.core.table.schema import SplitName, TableSchema
from sparkgpu.trees.boosting import BoostingEngine, BoostingModel, Fitted, Split
from sparkgpu.trials.engine import TreesTrial

_FILE = "model.pickle"


class Forest(BoostingEngine):
    """Takes `ntrees` and `max_depth` of ``[trees]``."""

    def fit(
        self, trial: TreesTrial, splits: Mapping[SplitName, Split], progress: Callable[[int, float], bool]
    ) -> Fitted:
        parameters, classes = trial.parameters, trial.schema.classes
        kind = RandomForestClassifier if classes else RandomForestRegressor
        forest = kind(
            n_estimators=parameters.ntrees, max_depth=parameters.max_depth or None,
            random_state=trial.spec.seed, n_jobs=trial.lane.tree_threads,
        )  # fmt: skip
        forest.fit(_numbers(splits["train"].features), splits["train"].label_N, splits["train"].weight_N)

        def loss(split: Split) -> float:
            found = _apply(forest, split.features)
            if classes:
                return float(log_loss(split.label_N, found, labels=range(len(classes))))
            return float(root_mean_squared_error(split.label_N, found))

        progress(parameters.ntrees, loss(splits["valid"]))
        return Fitted(
            predict=lambda frame: _apply(forest, frame),
            save=lambda folder: (folder / _FILE).write_bytes(pickle.dumps(forest)) and None,
            curve=[(parameters.ntrees, loss(splits["train"]), loss(splits["valid"]))],
            best_iteration=parameters.ntrees,
            native_parameters={key: str(value) for key, value in forest.get_params().items()},
            device_proof={"device": "cpu"},
        )

    @staticmethod
    def load(folder: Path, schema: TableSchema) -> BoostingModel:
        forest = pickle.loads((folder / _FILE).read_bytes())
        return BoostingModel(schema=schema, apply=lambda frame: _apply(forest, frame))


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Codes for categories, and for a missing value a number that no row has."""
    codes = {name: frame[name].cat.codes for name in frame.select_dtypes("category")}
    return frame.assign(**codes).fillna(-1e9)


def _apply(forest: Any, frame: pd.DataFrame) -> Any:
    numbers = _numbers(frame)
    return forest.predict_proba(numbers) if hasattr(forest, "predict_proba") else forest.predict(numbers)
