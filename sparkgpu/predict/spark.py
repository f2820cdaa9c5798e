"""A fitted model as a stage of `pyspark.ml`: predicts the rows of Spark DataFrames on the executors.

Each of Spark's Python workers loads the model once, so the run directory must have the same path on all
machines. No H2O and no GPU is needed.

C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.ml import Transformer
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable

from sparkgpu.core.errors import DataError
from sparkgpu.core.words import listed
from sparkgpu.predict.fitted import FittedModel
from sparkgpu.predict.members import BEST
from sparkgpu.predict.output import prediction_arrays, prediction_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class RunParams(Params):
    """The parameters that the stages share."""

    runDir: Param[str] = Param(
        Params._dummy(), "runDir", "the folder of a finished run", typeConverter=TypeConverters.toString
    )
    model: Param[str] = Param(
        Params._dummy(),
        "model",
        "best, trees, neural, blend, or a trial",
        typeConverter=TypeConverters.toString,
    )


class SparkgpuModel(Transformer, RunParams, DefaultParamsReadable["SparkgpuModel"], DefaultParamsWritable):
    """Adds ``prediction`` and, for classes, ``probability_<class>`` to a DataFrame.

    `runDir` is the folder of a finished run, `model` a name as in `sparkgpu.load`. Both are parameters of
    `pyspark.ml`, so the stage can be saved alone or in a Pipeline; the run directory is not copied.
    """

    def __init__(self, *, runDir: str | None = None, model: str | None = None) -> None:
        """Both may be left out and set later, as every stage of `pyspark.ml` allows."""
        super().__init__()
        self._setDefault(model=BEST)
        given = {"runDir": runDir, "model": model}
        self._set(**{name: value for name, value in given.items() if value is not None})

    def _transform(self, dataset: DataFrame) -> DataFrame:
        run_dir, model = self.getOrDefault(self.runDir), self.getOrDefault(self.model)
        # Loaded here, too: what cannot be predicted is refused before Spark starts a job.
        fitted = _loaded(run_dir, model)
        fitted.encoder().check(dataset.columns, "the DataFrame")
        added = prediction_columns(fitted.schema)
        taken = [name for name in dataset.columns if name in added]
        if taken:
            raise DataError(f"the DataFrame has columns {listed(map(repr, taken))} already. Rename them.")
        return dataset.mapInArrow(_predicting(run_dir, fitted.name), _schema(dataset, fitted))


def _schema(dataset: DataFrame, fitted: FittedModel) -> StructType:
    from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, StructField, StructType

    kinds: dict[str, Any] = {"i": LongType(), "f": DoubleType(), "b": BooleanType(), "O": StringType()}
    kind = kinds[fitted.classes_.dtype.kind] if fitted.schema.classes else DoubleType()
    first, *others = prediction_columns(fitted.schema)
    added = [StructField(first, kind), *(StructField(name, DoubleType()) for name in others)]
    return StructType([*dataset.schema.fields, *added])


def _predicting(run_dir: str, model: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def predict(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fitted = _loaded(run_dir, model)
        encoder = fitted.encoder()
        classes_C = fitted.classes_ if fitted.schema.classes else None
        names = prediction_columns(fitted.schema)
        for batch in batches:
            arrays = prediction_arrays(fitted.schema, classes_C, fitted.values(batch, encoder))
            yield pa.RecordBatch.from_arrays([*batch.columns, *arrays], names=[*batch.schema.names, *names])

    return predict


@lru_cache(maxsize=4)
def _loaded(run_dir: str, model: str) -> FittedModel:
    """The model, loaded once in each process."""
    return FittedModel(run_dir, model)
