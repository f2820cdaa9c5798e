"""A small plain Parquet table is prepared without Spark, as Spark would prepare it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.config import toml as config_io
from sparkgpu.plan.plan import prepares_table
from sparkgpu.prepare.content import fingerprint_of
from sparkgpu.prepare.early import plain_types, prepare_early
from sparkgpu.prepare.statistics import fingerprint
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.schema import TableSchema, read_schema
from sparkgpu.table.source import Source, find_source

LETTERS = "aäø€😀 \n\x00"
TEXTS = [None, "", *("".join(LETTERS[(i * i + size) % 8] for i in range(size)) for size in range(1, 75))]
BROKEN = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-320, 3.5, None]
ROWS = len(TEXTS)
EVERY_KIND = pa.table(
    {
        "text": pa.array(TEXTS),
        "Large": pa.array(TEXTS[::-1], pa.large_string()),
        "double": pa.array([BROKEN[i % 8] for i in range(ROWS)], pa.float64()),
        "float": pa.array([BROKEN[i % 7] for i in range(ROWS)], pa.float32()),
        "flag": pa.array([(True, False, None)[i % 3] for i in range(ROWS)]),
        "tiny": pa.array([i - 128 for i in range(ROWS)], pa.int8()),
        "small": pa.array([-(2**15) + i for i in range(ROWS)], pa.int16()),
        "int": pa.array([None if i % 5 == 0 else 2**31 - 1 - i for i in range(ROWS)], pa.int32()),
        "long": pa.array([-(2**63) + 7**i % 2**62 for i in range(ROWS)], pa.int64()),
    }
)


def written(folder: Path, table: pa.Table, **options: Any) -> Source:
    file = folder / "table.parquet"
    pq.write_table(table, file, **options)
    return find_source(str(file))


def prepared(source: Source, paths: RunPaths, target: str) -> TableSchema | None:
    config = config_io.load(options={"data.source": source.location, "data.target": target})
    events = EventWriter(paths.root / "events.jsonl", paths.root / "phases.json")
    return prepare_early(config=config, source=source, paths=paths, events=events)


@pytest.mark.spark
def test_the_fingerprint_is_the_same_by_spark_and_by_numpy(spark: Any, tmp_path: Path) -> None:
    source = written(tmp_path, EVERY_KIND, row_group_size=20)
    table = spark.read.parquet(source.location)
    types = plain_types(source)
    assert types == dict(table.dtypes)
    assert fingerprint_of(source, types) == fingerprint(table)


@pytest.mark.parametrize(
    ("column", "options"),
    [
        (pa.array([0, 1], pa.timestamp("us")), {}),
        (pa.array([0, 1], pa.uint64()), {}),
        (pa.array(["a", "b"]).dictionary_encode(), {}),
        (pa.array([[1], [2]]), {}),
        (pa.array([1, 2]), {"compression": "brotli"}),
    ],
)
def test_what_spark_may_read_in_another_way_is_left_to_it(
    tmp_path: Path, column: pa.Array, options: dict[str, Any]
) -> None:
    assert plain_types(written(tmp_path, pa.table({"x": pa.array([1.0, 2.0])}))) == {"x": "double"}
    assert plain_types(written(tmp_path, pa.table({"x": column}), **options)) is None


def test_what_spark_itself_wrote_is_left_to_it(tmp_path: Path) -> None:
    table = pa.table({"x": [1.0, 2.0]})
    table = table.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": "{}"})
    assert plain_types(written(tmp_path, table)) is None


def test_a_table_that_needs_no_spark_has_its_pipeline_before_it_is_there(tmp_path: Path) -> None:
    source = written(tmp_path, pa.table({"x": np.arange(60.0), "y": ["a", "b", "b"] * 20}))
    paths = RunPaths(root=tmp_path / "run")
    assert prepares_table(paths, 0, "trees")
    assert prepared(source, paths, "y") == read_schema(paths)
    assert not prepares_table(paths, 0, "trees")
    assert paths.pipeline.stat().st_mtime_ns <= paths.schema.stat().st_mtime_ns
