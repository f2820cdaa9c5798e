"""All that this package takes from pyspark behind an underscore, each with its reason; read in pyspark 3.5.9.

pyspark has no public way to the JVM behind a session. ruff (SLF001) keeps such names out of all other files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from py4j.java_gateway import JVMView
    from pyspark.ml.feature import PCAModel
    from pyspark.sql import Column, DataFrame, SparkSession


def java_of(session: SparkSession) -> JVMView:
    """The classes of the session's JVM: H2O's are among them."""
    java = session.sparkContext._jvm
    assert java is not None
    return java


def scala_context(session: SparkSession) -> Any:
    """Scala's SparkContext, which knows executors and tasks; `SparkContext.statusTracker` does not."""
    return session.sparkContext._jsc.sc()


def metadata_of(table: DataFrame, field: str) -> Column:
    """Spark's facts on a row's file, even if the user's table has a column ``_metadata``."""
    from pyspark.sql import Column

    return Column(table._jdf.metadataColumn("_metadata")).getField(field)


def arrow_batches(table: DataFrame) -> list[pa.RecordBatch]:
    """All rows of a small table, in the order of its partitions.

    `toPandas` makes a frame of the same batches, which loses types; Spark 4 has `toArrow`.
    """
    return list(table._collect_as_arrow())


def java_texts(java: JVMView, lists: Sequence[Sequence[str]]) -> Any:
    """The texts as a Java ``String[][]``, in one call: py4j alone needs one for each text."""
    mapper = java.com.fasterxml.jackson.databind.ObjectMapper()
    return mapper.readValue(
        json.dumps([list(texts) for texts in lists]), java.java.lang.Class.forName("[[Ljava.lang.String;")
    )


def pca_model(session: SparkSession, matrix_VF: NDArray[np.float64]) -> PCAModel:
    """Spark's own product of vectors (V,) with a matrix, which only PCA's fit makes publicly."""
    from pyspark.ml.common import _py2java
    from pyspark.ml.feature import PCAModel
    from pyspark.ml.linalg import DenseMatrix, Vectors

    rows, columns = matrix_VF.shape
    parts = (DenseMatrix(rows, columns, matrix_VF.ravel(order="F")), Vectors.dense([0.0] * columns))
    java = [_py2java(session.sparkContext, part) for part in parts]
    ml = java_of(session).org.apache.spark.ml
    model = ml.feature.PCAModel(ml.util.Identifiable.randomUID("pca"), *java)
    return PCAModel(model.set(model.k(), columns))
