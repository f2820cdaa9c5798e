"""The door for `pyspark.ml`: `SparkgpuEstimator` fits on a Spark DataFrame, `SparkgpuModel` predicts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.ml import Estimator, Transformer
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable

from sparkgpu import api
from sparkgpu.core.errors import ConfigError
from sparkgpu.predict.fitted import loaded
from sparkgpu.predict.members import BEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SparkgpuEstimator", "SparkgpuModel"]


def _text(name: str, doc: str) -> Param[str]:
    """A parameter of a stage, as `pyspark.ml` declares its own."""
    return Param(Params._dummy(), name, doc, typeConverter=TypeConverters.toString)


class _RunParams(Params):
    """The parameters that the stages share."""

    runDir = _text("runDir", "the folder of a finished run")
    model = _text("model", "best, trees, neural, blend, or a trial")

    def _set_given(self, **given: str | None) -> None:
        self._set(**{name: value for name, value in given.items() if value is not None})


class SparkgpuModel(Transformer, _RunParams, DefaultParamsReadable["SparkgpuModel"], DefaultParamsWritable):
    """Adds ``prediction`` and, for classes, ``probability_<class>`` to a DataFrame.

    `runDir` is the folder of a finished run, `model` a name as in `sparkgpu.load`. Both are parameters of
    `pyspark.ml`, so the stage can be saved alone or in a Pipeline; the run directory is not copied.

        >>> from sparkgpu.spark import SparkgpuModel
        >>> SparkgpuModel(runDir="reports/bottles", model="neural").transform(bottles).columns[-4:]
        ['prediction', 'probability_0', 'probability_1', 'probability_2']
    """

    def __init__(self, *, runDir: str | None = None, model: str | None = None) -> None:
        """Both may be left out and set later, as every stage of `pyspark.ml` allows."""
        super().__init__()
        self._setDefault(model=BEST)
        self._set_given(runDir=runDir, model=model)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        fitted = loaded(self.getOrDefault(self.runDir), self.getOrDefault(self.model))
        return fitted.transform(dataset)


class SparkgpuEstimator(
    Estimator[SparkgpuModel], _RunParams, DefaultParamsReadable["SparkgpuEstimator"], DefaultParamsWritable
):
    """Trains trees and a network on a DataFrame as `sparkgpu.run` does, and gives the model that leads.

    `labelCol` is the target, `runDir` the new folder of the run, which the model keeps using: on a cluster,
    all machines must see it. `model` is a name as in `sparkgpu.load`, and `config` holds the run's keys as
    JSON (``{"preset": "balanced", "trees.ntrees": 200}``). All are parameters of `pyspark.ml`.

        >>> from pyspark.sql import SparkSession
        >>> from sklearn.datasets import load_wine
        >>> from sparkgpu.spark import SparkgpuEstimator
        >>> spark = SparkSession.builder.master("local[2]").getOrCreate()
        >>> bottles = spark.createDataFrame(load_wine(as_frame=True).frame)
        >>> short = {"trees.engine": "xgboost", "trees.ntrees": 20, "neural.epochs": 3}
        >>> estimator = SparkgpuEstimator(labelCol="target", runDir="reports/bottles", config=short)
        >>> model = estimator.fit(bottles)
        <BLANKLINE>
        test split ...
        >>> model.transform(bottles).select("target", "prediction").count()
        178
    """

    labelCol = _text("labelCol", "the column to predict")
    config = _text("config", "the run's configuration as JSON")

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
        self._set_given(labelCol=labelCol, runDir=runDir, model=model, config=text)

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
