"""Prepares small tables and reads back the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.dialect import Dialect
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.table.source import Source, find_source
from sparkgpu.prepare.columns import ROW_ID

if TYPE_CHECKING:
    from pyspark.ml import PipelineModel
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A prepared table and its schema."""

    schema: TableSchema
    paths: RunPaths

    def table(self) -> pd.DataFrame:
        """All rows by row id, with their split, and with the texts of categories in place of their codes."""
        found = self.stored()
        for feature in self.schema.categorical:
            levels = dict(enumerate(feature.levels))
            found[feature.name] = found[feature.name].map(levels)
        return found

    def stored(self) -> pd.DataFrame:
        """All rows by row id, with their split, as the files hold them."""
        parts = [
            pq.read_table(file, partitioning=None)
            .to_pandas()
            .assign(split=folder.name.removeprefix("split="))
            for folder in sorted(self.paths.table.glob("split=*"))
            for file in sorted(folder.glob("*.parquet"))
        ]
        return pd.concat(parts).sort_values("row_id", ignore_index=True)

    def pipeline(self) -> PipelineModel:
        """The saved pipeline, read by plain Spark."""
        from pyspark.ml import PipelineModel

        return PipelineModel.load(str(self.paths.pipeline))

    def vectors(self, rows: DataFrame) -> np.ndarray:
        """What the saved pipeline makes of the user's columns."""
        from pyspark.ml.functions import vector_to_array

        applied = self.pipeline().transform(rows)
        return np.stack(applied.select(vector_to_array("features", "float32").alias("v")).toPandas()["v"])

    @property
    def dropped(self) -> dict[str, str]:
        return {item.column: item.reason for item in self.schema.dropped}

    @property
    def kinds(self) -> dict[str, str]:
        return {feature.title: feature.kind for feature in self.schema.features}


Prepare = Callable[..., Prepared]


@pytest.fixture
def prepare(request: pytest.FixtureRequest, tmp_path: Path) -> Prepare:
    """Prepare a path, or a mapping of columns (written as Parquet first); options are dotted keys.

    `by` is ``arrow``, ``spark`` (its pipeline, as in a run with H2O), or ``held`` for a table whose rows only
    Spark holds.
    """
    from sparkgpu.prepare.local_rows import LocalRows
    from sparkgpu.prepare.prepare import find_out, prepare_in_session, write_by_arrow, write_by_spark
    from sparkgpu.prepare.spark_rows import open_local
    from sparkgpu.prepare.to_parquet import to_parquet

    def run(
        data: Any, target: str | list[str], options: Mapping[str, Any] | None = None, *, by: str = "arrow"
    ) -> Prepared:
        number = len(list(tmp_path.glob("run-*")))
        if not isinstance(data, (str, Path)):
            table = data if isinstance(data, pa.Table) else pa.table(dict(data))
            data = tmp_path / f"table-{number}.parquet"
            pq.write_table(table, data)
        paths = RunPaths(root=tmp_path / f"run-{number} ü%20")
        config = config_io.load(options={"data.source": str(data), "data.target": target, **(options or {})})
        dialect = Dialect.of(config.data)
        own = {split: getattr(config.data, split) for split in ("valid", "test")}
        held_out = {split: find_source(name, dialect) for split, name in own.items() if name is not None}
        source = find_source(str(data), dialect).model_copy(update=held_out)
        (scratch := tmp_path / f"scratch-{number}").mkdir()
        events = EventWriter(paths.root / "events.jsonl", paths.root / "phases.json")
        run = {"paths": paths, "events": events}
        session = None if by == "arrow" else request.getfixturevalue("spark")
        try:
            if by == "held":
                schema = prepare_in_session(session, source, config=config, scratch=scratch, **run)
                return Prepared(schema=schema, paths=paths)
            rows = LocalRows(to_parquet(source, scratch, ignore=config.data.ignore), source)
            found = find_out(rows, source=source, config=config, **run)
            if by == "arrow":
                return Prepared(schema=write_by_arrow(rows, found, **run), paths=paths)
            schema, save = write_by_spark(session, open_local(session, rows), found, **run)
            save()
            return Prepared(schema=schema, paths=paths)
        except DataError:
            assert not paths.table.exists()
            raise

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write tables of Arrow as the files of a folder, in their order."""

    def write(tables: Sequence[pa.Table], ending: str = "parquet") -> Path:
        path = tmp_path / f"folder-{len(list(tmp_path.iterdir()))}"
        path.mkdir()
        writer = pyarrow.orc.write_table if ending == "orc" else pq.write_table
        for number, table in enumerate(tables):
            writer(table, path / f"{number}.{ending}")
        return path

    return write


@pytest.fixture
def read(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., pd.DataFrame]:
    """All rows of a path or a source by row id, as Spark opens them."""
    from sparkgpu.prepare.spark_source import open_numbered
    from sparkgpu.prepare.unreadable import refusing_unreadable

    def rows(path: Any) -> pd.DataFrame:
        source = path if isinstance(path, Source) else find_source(str(path))
        with refusing_unreadable(source):
            table = open_numbered(spark, source, tmp_path_factory.mktemp("scratch"))
            return table.toPandas().sort_values(ROW_ID, ignore_index=True)

    return rows


@pytest.fixture
def converted(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., pq.ParquetFile]:
    """The Parquet file that a local table in another format becomes."""
    from sparkgpu.prepare.to_parquet import to_parquet

    def file(path: Path) -> pq.ParquetFile:
        made = to_parquet(find_source(str(path)), tmp_path_factory.mktemp("scratch"))
        return pq.ParquetFile(made.location)

    return file


@pytest.fixture
def same() -> Callable[[Prepared, Prepared], None]:
    """Check that two tables are the same to the last bit."""

    def check(one: Prepared, other: Prepared) -> None:
        assert one.schema == other.schema
        found, expected = one.stored(), other.stored()
        assert list(found) == list(expected)
        for name in found:
            assert name == "split" or found[name].to_numpy().tobytes() == expected[name].to_numpy().tobytes()
        assert found["split"].equals(expected["split"])

    return check


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
