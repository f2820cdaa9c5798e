"""Whether H2O's XGBoost trains on this lane's GPU: it fits two trees and is asked what it used.

Its library was made for CUDA 11, with machine code up to compute capability 8.0. On a newer GPU the driver
translates it, or it fails, or H2O turns to the CPU without a word.
"""

from __future__ import annotations

import h2o
import numpy as np
from h2o.estimators import H2OXGBoostEstimator

from sparkgpu.h2o.client_internals import output_of
from sparkgpu.h2o.history import native_parameters

_ROWS = 400
_TREES = 2


def why_not_on_gpu() -> str | None:
    """Why H2O's XGBoost does not train on the GPU that this process sees; None if it does."""
    random = np.random.default_rng(0)
    x_N = random.normal(size=_ROWS)
    frame = h2o.H2OFrame({"x": x_N.tolist(), "y": (x_N + random.normal(size=_ROWS)).tolist()})
    model = H2OXGBoostEstimator(
        ntrees=_TREES, max_depth=2, tree_method="hist", backend="gpu", gpu_id=[0], seed=1
    )
    try:
        model.train(x=["x"], y="y", training_frame=frame)
        used = native_parameters(output_of(model)).get("tree_method")
        h2o.remove(model.model_id)
    except Exception as error:  # H2O reports what its library meets in many ways
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        return next((line for line in lines if "rror" in line), lines[0] if lines else type(error).__name__)
    finally:
        h2o.remove(frame.frame_id)
    return None if used == "gpu_hist" else f"it trained with {used!r}"
