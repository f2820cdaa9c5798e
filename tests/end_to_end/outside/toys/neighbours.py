"""An in-context model, whose weights are a number."""

from pathlib import Path

import numpy as np
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparkgpu.neural.in_context.engine import InContextEngine, Reader, Weights


class Neighbours(InContextEngine):
    """The mean of as many rows as its file says."""

    def weights(self, context, checkpoint):
        file = Path(checkpoint or Path(__file__).with_name("neighbours.txt"))
        return Weights(file=file, described=f"{file.name}; licence: Apache-2.0")

    @staticmethod
    def read(context, weights, device):
        kind = KNeighborsRegressor if context.is_regression else KNeighborsClassifier
        model = make_pipeline(StandardScaler(), kind(int(weights.read_text())))
        model.fit(np.nan_to_num(context.x_NX), context.label_N)
        ask = model.predict if context.is_regression else model.predict_proba
        return Reader(predict=lambda x_NX: ask(np.nan_to_num(x_NX)))
