"""The code of a model in MLflow, which runs it when it loads the model; so nothing is pickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from sparkgpu.predict.fitted import FittedModel
from sparkgpu.predict.mlflow_model import NAME, RUN, predicted


class _SparkgpuModel(PythonModel):  # type: ignore[misc]
    """A model of a run; its artifact ``run`` holds the files."""

    def load_context(self, context: PythonModelContext) -> None:
        folder = Path(context.artifacts[RUN])
        self._model = FittedModel(folder, (folder / NAME).read_text(encoding="utf-8"))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        return predicted(self._model, model_input)


set_model(_SparkgpuModel())
