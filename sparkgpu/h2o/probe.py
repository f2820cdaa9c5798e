"""Whether H2O's XGBoost trains on this lane's GPU: it fits two trees, and two witnesses are heard.

Its library was made for CUDA 11, with machine code up to compute capability 8.x. On a newer GPU the driver
translates it, or it fails, or H2O turns to the CPU without a word. The first witness is H2O, which tells the
parameters that it handed to its library; the second is NVML, which lists the processes on the GPU.
"""

from __future__ import annotations

import os

import h2o
import numpy as np
import psutil
from h2o.estimators import H2OXGBoostEstimator

from sparkgpu.core.host.gpus import find_gpus, is_on_gpu
from sparkgpu.core.rundir.events import PROBING, EventWriter
from sparkgpu.h2o.client_internals import output_of
from sparkgpu.h2o.history import native_parameters
from sparkgpu.h2o.proven import one_at_a_time, prove, sign_of

_ROWS = 400
_TREES = 2


def why_not_on_gpu(events: EventWriter) -> str | None:
    """Why H2O's XGBoost does not train on the GPU that this process sees; None if it does.

    That it does is kept for this kind of card and driver (`sparkgpu.h2o.proven`).
    """
    survey, visible = find_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
    card = next((gpu for gpu in survey.gpus if gpu.uuid == visible), None)
    with one_at_a_time(events):
        if card is not None and sign_of(survey.driver, card).exists():
            return None
        with events.phase(PROBING):
            reason = _why_not()
        if reason is None and is_on_gpu(visible, _processes()) is False:
            reason = "NVML shows other processes on the GPU, and not that of H2O"
        if reason is None and card is not None:
            prove(survey.driver, card)
    return reason


def _processes() -> set[int]:
    """This process and its descendants, of which one is H2O's JVM."""
    own = psutil.Process()
    return {own.pid, *(child.pid for child in own.children(recursive=True))}


def _why_not() -> str | None:
    random = np.random.default_rng(0)
    x_N = random.normal(size=_ROWS)
    frame = h2o.H2OFrame({"x": x_N.tolist(), "y": (x_N + random.normal(size=_ROWS)).tolist()})
    model = H2OXGBoostEstimator(
        ntrees=_TREES, max_depth=2, tree_method="hist", backend="gpu", gpu_id=[0], seed=1
    )
    try:
        model.train(x=["x"], y="y", training_frame=frame)
        asked = native_parameters(output_of(model)).get("tree_method")
        h2o.remove(model.model_id)
    except Exception as error:  # H2O reports what its library meets in many ways
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        return next((line for line in lines if "rror" in line), lines[0] if lines else type(error).__name__)
    finally:
        h2o.remove(frame.frame_id)
    return None if asked == "gpu_hist" else f"H2O asked its library for {asked!r}"
