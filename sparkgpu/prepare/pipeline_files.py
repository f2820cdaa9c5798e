"""Saves a fitted pipeline as `pyspark.ml` does, but without a JVM; `PipelineModel.load` reads it.

A stage is a folder of its name and uid: its class and parameters as JSON and, for an indexer, its labels as
Parquet (`org.apache.spark.ml.util.DefaultParamsWriter` and `StringIndexerModel.write`, Spark 3.5). A JVM that
has just started takes a second for these small files. Names and values are those of Spark's own writer; the
checksums beside Hadoop's files are left out, which its readers accept.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.prepare.features import Described, index_of

_PART = "part-00000"
_UID_LETTERS = 12


def save_pipeline(described: Described, folder: Path) -> None:
    """Write the pipeline to `folder` in place of what is there; it is complete or absent."""
    made = folder.with_name(f".{folder.name}")
    shutil.rmtree(made, ignore_errors=True)
    stages = [_sql(described), *([_indexer(described)] if described.labels else []), _assembler(described)]
    uids = [stage["uid"] for stage in stages]
    for place, stage in enumerate(stages):
        _write_metadata(made / "stages" / f"{place}_{stage['uid']}", stage)
    if described.labels:
        _write_labels(made / "stages" / f"1_{uids[1]}" / "data", described.labels)
    whole = _stage("org.apache.spark.ml.PipelineModel", "PipelineModel", uids, stageUids=uids)
    _write_metadata(made, whole)
    shutil.rmtree(folder, ignore_errors=True)
    made.replace(folder)


def _sql(described: Described) -> dict[str, Any]:
    statement = described.statement
    return _stage(
        "org.apache.spark.ml.feature.SQLTransformer", "SQLTransformer", statement, statement=statement
    )


def _indexer(described: Described) -> dict[str, Any]:
    """Null and unknown levels get the code after the column's last level."""
    words = described.words
    stage = _stage(
        "org.apache.spark.ml.feature.StringIndexerModel",
        "strIdx",
        [words, described.labels],
        handleInvalid="keep",
        inputCols=words,
        outputCols=[index_of(column) for column in words],
    )
    stage["defaultParamMap"] = {
        "handleInvalid": "error", "outputCol": f"{stage['uid']}__output", "stringOrderType": "frequencyDesc",
    }  # fmt: skip
    return stage


def _assembler(described: Described) -> dict[str, Any]:
    stage = _stage(
        "org.apache.spark.ml.feature.VectorAssembler",
        "VectorAssembler",
        [described.vector, described.assembled],
        outputCol=described.vector,
        handleInvalid="keep",
        inputCols=described.assembled,
    )
    stage["defaultParamMap"] = {"outputCol": f"{stage['uid']}__output", "handleInvalid": "error"}
    return stage


def _stage(kind: str, name: str, content: Any, **parameters: Any) -> dict[str, Any]:
    """A stage's metadata; its uid follows from its `content`, so that equal pipelines are equal files."""
    digest = hashlib.sha256(json.dumps([kind, content]).encode()).hexdigest()
    return {
        "class": kind,
        "timestamp": time.time_ns() // 1_000_000,
        "sparkVersion": version("pyspark"),
        "uid": f"{name}_{digest[:_UID_LETTERS]}",
        "paramMap": parameters,
        "defaultParamMap": {},
    }


def _write_metadata(folder: Path, metadata: Mapping[str, Any]) -> None:
    folder = folder / "metadata"
    folder.mkdir(parents=True)
    (folder / _PART).write_text(f"{json.dumps(metadata)}\n", encoding="utf-8")
    (folder / "_SUCCESS").touch()


def _write_labels(folder: Path, labels: Sequence[Sequence[str]]) -> None:
    folder.mkdir()
    kind = pa.list_(pa.list_(pa.string()))
    table = pa.table({"labelsArray": pa.array([[list(texts) for texts in labels]], kind)})
    pq.write_table(table, folder / f"{_PART}.snappy.parquet", compression="snappy")
    (folder / "_SUCCESS").touch()
