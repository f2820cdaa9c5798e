"""The models of a run with several targets, applied together: what `sparkgpu.load` returns for such a run.

Each target's model is one of its own run directory, and `FittedModel` is all there is to it. Columns of
predictions have the target's name before their own: ``price_prediction``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkgpu.core.rundir.files import read_record
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.targets import TargetIndex
from sparkgpu.predict.fitted import FittedModel
from sparkgpu.predict.members import BEST
from sparkgpu.predict.output import of_target, prediction_columns

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame as SparkDataFrame


class FittedTargets:
    """A model of each target: `models` by name, or ``fitted["price"]``."""

    def __init__(self, run_dir: str | Path, model: str = BEST) -> None:
        """Load `model` of each target: ``"best"`` is each one's own leader. Raises as `FittedModel` does."""
        paths = RunPaths(root=Path(run_dir).expanduser().resolve())
        index = read_record(paths.targets_index, TargetIndex)
        self.run_dir = paths.root
        self.models: Mapping[str, FittedModel] = {
            entry.target: FittedModel(paths.target(entry.folder).root, model) for entry in index.targets
        }

    def __getitem__(self, target: str) -> FittedModel:
        return self.models[target]

    def predict(self, data: Any) -> pd.DataFrame:
        """The predictions, a column for each target; `data` is what `FittedModel.predict` takes."""
        import pandas as pd

        from sparkgpu.predict.frames import as_reader

        table = as_reader(data).read_all()  # a stream can be read only once
        return pd.DataFrame({target: model.predict(table) for target, model in self.models.items()})

    def predict_proba(self, data: Any) -> dict[str, NDArray[np.float64]]:
        """The probabilities (N, C) of each target that has classes."""
        from sparkgpu.predict.frames import as_reader

        table = as_reader(data).read_all()
        return {
            target: model.predict_proba(table)
            for target, model in self.models.items()
            if model.schema.classes
        }

    def transform(self, frame: SparkDataFrame) -> SparkDataFrame:
        """A Spark DataFrame with the columns of all predictions; see `FittedModel.transform`."""
        for target, model in self.models.items():
            frame = model.transform(frame)
            for name in prediction_columns(model.schema, model.intervals):
                frame = frame.withColumnRenamed(name, of_target(target, name))
        return frame

    def __repr__(self) -> str:
        return f"<{self.run_dir}: predicts {', '.join(self.models)}>"
