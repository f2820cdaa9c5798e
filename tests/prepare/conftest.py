"""Prepares small tables in the session's Spark, and reads back the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.config import toml as config_io
from sparkgpu.errors import DataError
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.schema import TableSchema
from sparkgpu.table.source import find_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A prepared table and its schema."""

    schema: TableSchema
    paths: RunPaths

    def table(self) -> pd.DataFrame:
        """All rows by row id, with their split."""
        parts = [
            pq.read_table(file, partitioning=None)
            .to_pandas()
            .assign(split=folder.name.removeprefix("split="))
            for folder in sorted(self.paths.table.glob("split=*"))
            for file in sorted(folder.glob("*.parquet"))
        ]
        return pd.concat(parts).sort_values("row_id", ignore_index=True)

    @property
    def dropped(self) -> dict[str, str]:
        return {item.column: item.reason for item in self.schema.dropped}

    @property
    def kinds(self) -> dict[str, str]:
        return {feature.title: feature.kind for feature in self.schema.features}


Prepare = Callable[..., Prepared]


@pytest.fixture
def prepare(spark: SparkSession, tmp_path: Path) -> Prepare:
    """Prepare a path, or a mapping of columns (written as Parquet first); options are dotted keys.

    pyarrow prepares the table alone, or reads it first, if it can, as in a run, unless `by_spark` is set.
    """
    from sparkgpu.prepare.early import prepare_early
    from sparkgpu.prepare.formats.typed_copy import typed_copy
    from sparkgpu.prepare.parquet_statistics import scan_parquet
    from sparkgpu.prepare.prepare import prepare as prepare_run

    def run(
        data: Any, target: str, options: Mapping[str, Any] | None = None, *, by_spark: bool = False
    ) -> Prepared:
        number = len(list(tmp_path.glob("run-*")))
        if not isinstance(data, (str, Path)):
            table = data if isinstance(data, pa.Table) else pa.table(dict(data))
            data = tmp_path / f"table-{number}.parquet"
            pq.write_table(table, data)
        paths = RunPaths(root=tmp_path / f"run-{number}")
        settings = config_io.load(
            options={"data.source": str(data), "data.target": target, **(options or {})}
        )
        source = find_source(str(data))
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        events = EventWriter(paths.root / "events.jsonl", paths.root / "phases.json")
        try:
            if not by_spark:
                source = typed_copy(source, scratch)
            early = (
                None
                if by_spark
                else prepare_early(config=settings, source=source, paths=paths, events=events)
            )
            if early is not None:
                return Prepared(schema=early, paths=paths)
            schema = prepare_run(
                spark,
                config=settings,
                source=source,
                scratch=scratch,
                paths=paths,
                events=events,
                scan=lambda: None if by_spark else scan_parquet(source, target),
            )
        except DataError:
            assert not paths.table.exists()
            raise
        assert not spark.sparkContext._jsc.getPersistentRDDs()
        return Prepared(schema=schema, paths=paths)

    return run


@pytest.fixture
def refused() -> Callable[..., str]:
    """Call, expect a `DataError`, check the form of its sentence, and return it."""

    def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
        with pytest.raises(DataError) as caught:
            function(*arguments, **options)
        text = str(caught.value)
        assert "\n" not in text and text.endswith("."), text
        assert not re.search(r"Exception|Traceback|org\.apache|java\.|\tat |SQLSTATE", text), text
        assert len(re.findall(r"[.?](?= [A-Z]|$)", text)) <= 3, text
        return text

    return call
