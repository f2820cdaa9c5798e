"""The feature pipeline: a `pyspark.ml` PipelineModel from the user's columns to the vector of features.

Its stages are Spark's own: a SQLTransformer (typed columns, parts of timestamps), a StringIndexerModel with
the levels found in the training rows, a SQLTransformer (codes; missing is null), a VectorAssembler (missing
is NaN), which takes columns of finite numbers as they are. A text goes through a RegexTokenizer, a
CountVectorizerModel, its words' rareness, a Normalizer, and a PCAModel whose matrix gives estimates and
topics; in the table, training rows have other estimates (`sparkgpu.prepare.texts`). One more SQLTransformer
adds the sums of pairs (`sparkgpu.prepare.pairs`). Saved by Spark's own
writer, it gives the same vectors in plain Spark, in a session whose time zone is UTC. Mean targets of levels
enter as columns before the VectorAssembler.

`sparkgpu.prepare.encoding` gives the same features for new rows without Spark; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sparkgpu.core.table.schema import OTHER_LEVEL, Feature
from sparkgpu.prepare.column_values import FINITE_NUMBER, TIMESTAMP
from sparkgpu.prepare.columns import BROKEN_TYPES, quoted
from sparkgpu.prepare.pyspark_internals import java_of, java_texts, pca_model
from sparkgpu.prepare.roles import FLOAT32_MAX
from sparkgpu.prepare.texts import WORD, TextFeatures
from sparkgpu.prepare.timestamps import TIME_PARTS

if TYPE_CHECKING:
    from pyspark.ml import PipelineModel, Transformer
    from pyspark.sql import SparkSession

_BLANKS = r"[\\x00-\\x20]*"
VECTOR = "features"


def pipeline_model(
    session: SparkSession,
    features: Sequence[Feature],
    types: Mapping[str, str],
    texts: Mapping[str, TextFeatures],
) -> PipelineModel:
    """The fitted pipeline of `features` over a table with columns of these `types`.

    `texts` are by the name of the first feature of a text: its place in the pipeline is that of all.
    """
    from pyspark.ml import PipelineModel
    from pyspark.ml.feature import SQLTransformer, StringIndexerModel, VectorAssembler

    features = [feature for feature in features if not feature.is_text or feature.name in texts]
    own = [feature for feature in features if feature.means_of is None]
    typed = [
        f"{_typed(feature)} AS {feature.pipeline}"
        for feature in own
        if feature.pipeline != feature.source and not feature.pair
    ]
    stages: list[Transformer] = []
    if typed:
        stages.append(SQLTransformer(statement=f"SELECT *, {', '.join(typed)} FROM __THIS__"))
    by_name = {feature.name: feature for feature in own}
    if pairs := [f"{_pair(feature, by_name)} AS {feature.pipeline}" for feature in own if feature.pair]:
        stages.append(SQLTransformer(statement=f"SELECT *, {', '.join(pairs)} FROM __THIS__"))
    indexed = [feature for feature in own if _is_indexed(feature)]
    if indexed:
        java = java_of(session)
        labels = java_texts(java, [_labels(feature) for feature in indexed])
        model = StringIndexerModel(java.org.apache.spark.ml.feature.StringIndexerModel(labels))
        model.setInputCols([feature.pipeline for feature in indexed])
        model.setOutputCols([f"{feature.pipeline}_index" for feature in indexed])
        stages.append(model.setHandleInvalid("keep"))  # null and unknown texts get the code after the last
        codes = [f"{_code(feature)} AS {feature.pipeline}_code" for feature in indexed]
        stages.append(SQLTransformer(statement=f"SELECT *, {', '.join(codes)} FROM __THIS__"))
    for feature in own:
        if feature.is_text:
            stages += _text_stages(session, feature.pipeline, texts[feature.name])
    slots = [_slot(feature) for feature in features]
    stages.append(VectorAssembler(inputCols=slots, outputCol=vector_name(types), handleInvalid="keep"))
    return PipelineModel(stages)


def vector_name(columns: Mapping[str, str]) -> str:
    """The name of the assembled column: ``features``, unless the user's table has that column."""
    name = VECTOR
    while name.casefold() in map(str.casefold, columns):  # Spark's names may ignore case
        name = f"assembled_{name}"
    return name


def _text_stages(session: SparkSession, name: str, fitted: TextFeatures) -> list[Transformer]:
    """From a column of texts to its vector of estimates and topics; each stage adds a column to that name."""
    from pyspark.ml.feature import CountVectorizerModel, ElementwiseProduct, Normalizer, RegexTokenizer
    from pyspark.ml.linalg import Vectors

    java = java_of(session)
    (words,) = java_texts(java, [fitted.words.to_pylist()])
    counts = CountVectorizerModel(java.org.apache.spark.ml.feature.CountVectorizerModel(words))
    ends = [name, *(f"{name}_{end}" for end in ("words", "counts", "weighted", "unit", "text"))]
    tokens = RegexTokenizer(pattern=WORD, gaps=False)
    weighted = ElementwiseProduct(scalingVec=Vectors.dense(fitted.idf_V))
    stages: list[Any] = [tokens, counts, weighted, Normalizer(), pca_model(session, fitted.all_VF)]
    for stage, (column, made) in zip(stages, pairwise(ends), strict=True):
        stage.setInputCol(column).setOutputCol(made)
    return stages


def _slot(feature: Feature) -> str:
    """The column that VectorAssembler takes."""
    if feature.is_text:
        return f"{feature.pipeline}_text"
    return f"{feature.pipeline}_code" if _is_indexed(feature) else feature.pipeline


def _pair(feature: Feature, by_name: Mapping[str, Feature]) -> str:
    """The SQL of a feature made of two others; in 32 bits, as the table holds them."""
    first, second = (f"cast({quoted(by_name[name].pipeline)} AS float)" for name in feature.pair or ())
    return f"{first} {'+' if feature.reading == 'sum' else '-'} {second}"


def _is_indexed(feature: Feature) -> bool:
    """Whether its texts are indexed; floats have other texts in Spark than in Arrow, so they are compared."""
    return feature.kind == "categorical" and feature.type not in BROKEN_TYPES


def _labels(feature: Feature) -> list[str]:
    return [level for level in feature.levels if level != OTHER_LEVEL]


def _code(feature: Feature) -> str:
    """The level code from the index; the levels beyond the cap share the last code."""
    index = f"{feature.pipeline}_index"
    if OTHER_LEVEL in feature.levels:
        return f"CASE WHEN {feature.pipeline} IS NOT NULL THEN {index} END"
    return f"CASE WHEN {index} < {len(feature.levels)} THEN {index} END"


def _typed(feature: Feature) -> str:
    """The SQL that reads a feature from its column."""
    column, kind = quoted(feature.source), feature.type or ""
    if feature.reading == "timestamp":
        return TIME_PARTS[feature.part or ""].sql.format(_timestamp(column, kind))
    if feature.reading == "category":
        return _float_code(feature, column) if kind in BROKEN_TYPES else f"cast({column} AS string)"
    if feature.is_text:
        return f"concat_ws(' ', {column})"  # of texts as of lists; null has no words
    if feature.reading == "boolean":
        return f"cast(cast({column} AS boolean) AS int)"
    if kind in BROKEN_TYPES:
        return _finite(column)
    if kind == "string":
        is_number = f"{column} RLIKE '^{_BLANKS}({_escaped(FINITE_NUMBER)}){_BLANKS}$'"
        return _finite(f"(CASE WHEN {is_number} THEN cast({column} AS double) END)")
    if kind == "boolean":
        return f"cast({column} AS int)"
    return f"cast({column} AS double)" if kind.startswith("decimal") else column


def _timestamp(column: str, kind: str) -> str:
    if kind == "string":
        is_timestamp = f"{column} RLIKE '^{_BLANKS}({_escaped(TIMESTAMP)}){_BLANKS}$'"
        return f"(CASE WHEN {is_timestamp} THEN try_cast(trim({column}) AS timestamp) END)"
    return f"try_cast({column} AS timestamp)"


def _finite(number: str) -> str:
    """The SQL of a number that is null if it is not finite in 32 bits, which all engines learn from.

    In Spark, NaN is above infinity.
    """
    return f"CASE WHEN abs({number}) <= {FLOAT32_MAX!r}D THEN {number} END"


def _float_code(feature: Feature, column: str) -> str:
    """The level code of floats: the position among the levels, and for others that of `OTHER_LEVEL`."""
    values = [f"cast({float(level)!r}D AS {feature.type})" for level in _labels(feature)]
    other = float(len(values)) if OTHER_LEVEL in feature.levels else "NULL"
    found = f"array_position(array({', '.join(values)}), {column})"
    return (
        f"CASE WHEN NOT abs({column}) < double('infinity') OR {column} IS NULL THEN NULL "
        f"WHEN {found} = 0 THEN {other} ELSE cast({found} - 1 AS double) END"
    )


def _escaped(pattern: str) -> str:
    """A regular expression in a text of SQL."""
    return pattern.replace("\\", "\\\\").replace("'", "\\'")
