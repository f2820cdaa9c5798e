"""The door for `pyspark.ml`: `SparkgpuEstimator` fits on a Spark DataFrame, `SparkgpuModel` predicts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.ml import Estimator
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable

from sparkgpu import api
from sparkgpu.core.errors import ConfigError
from sparkgpu.predict.members import BEST
from sparkgpu.predict.spark import RunParams, SparkgpuModel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SparkgpuEstimator", "SparkgpuModel"]


class SparkgpuEstimator(
    Estimator[SparkgpuModel], RunParams, DefaultParamsReadable["SparkgpuEstimator"], DefaultParamsWritable
):
    """Trains trees and a network on a DataFrame as `sparkgpu.run` does, and gives the model that leads.

    `labelCol` is the target, `runDir` the new folder of the run, which the model keeps using: on a cluster,
    all machines must see it. `model` is a name as in `sparkgpu.load`, and `config` holds the run's keys as
    JSON (``{"preset": "balanced", "trees.ntrees": 200}``). All are parameters of `pyspark.ml`.
    """

    labelCol: Param[str] = Param(
        Params._dummy(), "labelCol", "the column to predict", typeConverter=TypeConverters.toString
    )
    config: Param[str] = Param(
        Params._dummy(), "config", "the run's configuration as JSON", typeConverter=TypeConverters.toString
    )

    def __init__(
        self,
        *,
        labelCol: str = "label",
        runDir: str | None = None,
        model: str = BEST,
        config: dict[str, Any] | str | None = None,
    ) -> None:
        super().__init__()
        self._setDefault(labelCol="label", model=BEST, config="{}")
        text = json.dumps(config) if isinstance(config, dict) else config
        given = {"labelCol": labelCol, "runDir": runDir, "model": model, "config": text}
        self._set(**{name: value for name, value in given.items() if value is not None})

    def _fit(self, dataset: DataFrame) -> SparkgpuModel:
        if not self.isDefined(self.runDir):
            raise ConfigError("SparkgpuEstimator: give runDir, the new folder of the run.")
        found = api.run(
            dataset,
            target=self.getOrDefault(self.labelCol),
            out=self.getOrDefault(self.runDir),
            config=json.loads(self.getOrDefault(self.config)),
            quiet=True,
        )
        return SparkgpuModel(runDir=str(found.path), model=self.getOrDefault(self.model))
