"""All that this package takes from H2O's Python client behind an underscore; read in h2o 3.46.0.6.

ruff (SLF001) keeps such names out of all other files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import h2o
from h2o.estimators import H2OXGBoostEstimator

if TYPE_CHECKING:
    from h2o import H2OFrame
    from h2o.expr import ExprNode


def job_of(model: H2OXGBoostEstimator) -> str:
    """The key of the job of a model that was started, which its public `join` only waits for."""
    return str(model._job.job_key)


def output_of(model: H2OXGBoostEstimator) -> Mapping[str, Any]:
    """The output of a trained model: the public methods print parts of it, and leave the parameters out."""
    output: Mapping[str, Any] = model._model_json["output"]
    return output


def frame_of(expression: ExprNode) -> H2OFrame:
    """A frame that H2O makes of a whole expression at once; public methods ask for each of its columns."""
    return h2o.H2OFrame._expr(expr=expression)
