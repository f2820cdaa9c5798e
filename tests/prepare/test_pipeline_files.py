"""A pipeline that is saved without a JVM is the one that Spark would save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sparkgpu.prepare.features import describe
from sparkgpu.prepare.levels import Levels
from sparkgpu.prepare.pipeline_files import save_pipeline
from sparkgpu.prepare.roles import ColumnRole

WORDS = ("b \u2028", "", "ä`😀", 'a "quoted"\\ word\n')
TYPES = {"word of `it`": "string", "x": "double", "features": "string", "when": "timestamp"}
ROLES = (
    ColumnRole(column="word of `it`", role="categorical"),
    ColumnRole(column="x", role="numeric"),
    ColumnRole(column="features", role="categorical"),
    ColumnRole(column="when", role="timestamp", parts=("hour", "days since 1970")),
)


def saved(folder: Path, roles: tuple[ColumnRole, ...] = ROLES) -> Path:
    levels = {
        "word of `it`": Levels(levels=WORDS, num_levels=4, kept=9, values=9, rows=9),
        "features": Levels(levels=("only",), num_levels=1, kept=9, values=9, rows=9),
    }
    save_pipeline(describe(roles, TYPES, tuple(TYPES), levels), folder / "pipeline")
    return folder / "pipeline"


def content(pipeline: Path) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """The metadata of the pipeline and its stages without what each saving draws anew, and the labels."""
    found = []
    for file in (pipeline / "metadata", *sorted((pipeline / "stages").glob("*/metadata"))):
        metadata = json.loads((file / "part-00000").read_text(encoding="utf-8"))
        assert metadata.pop("uid") and metadata.pop("timestamp") > 0
        metadata["defaultParamMap"].pop("outputCol", None)  # a name that each new object draws
        metadata["paramMap"].pop("stageUids", None)
        found.append(metadata)
    (labels,) = pq.read_table(next(pipeline.glob("stages/1_*/data")))["labelsArray"].to_pylist()
    return found, labels


def test_equal_pipelines_are_equal_files_and_another_replaces_the_first(tmp_path: Path) -> None:
    first = {file.relative_to(tmp_path) for file in saved(tmp_path).rglob("*")}
    assert {file.relative_to(tmp_path) for file in saved(tmp_path).rglob("*")} == first
    saved(tmp_path, ROLES[1:2])
    assert [path.name.split("_")[1] for path in sorted((tmp_path / "pipeline/stages").iterdir())] == [
        "SQLTransformer", "VectorAssembler",
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline"]


@pytest.mark.spark
def test_spark_reads_it_and_would_save_the_same(spark: Any, tmp_path: Path) -> None:
    from pyspark.ml import PipelineModel

    pipeline = saved(tmp_path)
    loaded = PipelineModel.load(str(pipeline))
    assert [list(texts) for texts in loaded.stages[1].labelsArray] == [list(WORDS), ["only"]]
    loaded.write().save(str(tmp_path / "by_spark"))
    assert content(pipeline) == content(tmp_path / "by_spark")
    rows = [(word, 1.5, "only", None) for word in (*WORDS, "never seen", None)]
    table = spark.createDataFrame(rows, "`word of ``it``` string, x double, features string, when timestamp")
    found = [row.assembled_features.toArray() for row in loaded.transform(table).collect()]
    assert [values[0] for values in found] == [0, 1, 2, 3, 4, 4]
    assert [values[1] for values in found] == [1.5] * 6
