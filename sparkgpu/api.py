"""The Python door: ``sparkgpu.run(data, target=...)`` and ``sparkgpu.refit``, in scripts and notebooks."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import dotted
from sparkgpu.core.config.toml import keyed
from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.core.host.interpreter import complete_environment
from sparkgpu.core.table.source import TABLE_PREFIX
from sparkgpu.core.words import listed
from sparkgpu.present.run_result import RunResult, TargetsResult, read_run
from sparkgpu.present.terminal.display import open_display
from sparkgpu.runs import run as orchestrate
from sparkgpu.runs.folder import resumed_config


class ArrowStream(Protocol):
    """A frame that exports Arrow: polars, pyarrow, DuckDB, Ibis and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession
    from typing_extensions import TypeIs

    Data = str | Path | pandas.DataFrame | SparkDataFrame | ArrowStream | None


def run(
    data: Data = None,
    *,
    target: str | Sequence[str] | None = None,
    task: Literal["auto", "binary", "multiclass", "regression"] | None = None,
    gpus: Literal["all"] | Sequence[int | str] | None = None,
    cpu_lanes: int | None = None,
    repeats: int | None = None,
    strategy: str | None = None,
    preset: Literal["fast", "balanced", "best"] | None = None,
    also: Sequence[str] | str | None = None,
    time_limit: str | float | None = None,
    search: int | None = None,
    metric: str | None = None,
    intervals: float | None = None,
    groups: Sequence[str] | str | None = None,
    valid: Data = None,
    test: Data = None,
    config: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> RunResult | Any:
    """Train trees and a network on `data` side by side, and compare them; the same run as ``sparkgpu run``.

    `data` is a path (or ``table:NAME``), a Spark DataFrame, or a pandas, polars, pyarrow or other frame that
    exports Arrow; None is the built-in demo. `valid` and `test` are your own rows, in any of these forms.
    Of several targets, such as ``["price", "sold"]``, the result is a `TargetsResult` with one for each.
    `also` names further models for the same rows, such as ``["lightgbm", "realmlp"]``, `time_limit` is the
    time for the whole run (``"10m"``, or seconds), `search` the number of settings to try for each model.
    With `intervals` (0.9) predictions have intervals or sets of classes that hold the truth in that share. By
    the columns in `groups` each model is also scored in groups of the test rows.
    `config` is the path of a ``run.toml`` or a mapping of its keys (``{"trees": {"ntrees": 200}}`` or
    ``{"trees.ntrees": 200}``). `resume` continues the stopped run in `out` with its own configuration; only
    the devices, the strategy and `intervals` may change.

    Raises `sparkgpu.core.errors.SparkgpuError` (a ValueError) with a short message if the run is impossible;
    if a trial fails, the run returns with `exit_code` 5.

    A run without Java, of a few seconds:

        >>> import sparkgpu
        >>> from sklearn.datasets import load_wine
        >>> wine = load_wine(as_frame=True).frame
        >>> short = {"trees.engine": "xgboost", "trees.ntrees": 20, "neural.epochs": 3}
        >>> result = sparkgpu.run(wine, target="target", out="reports/wine", config=short, quiet=True)
        <BLANKLINE>
        test split ...
        >>> sorted(result.leaderboard()["model"])
        ['blend', 'neural', 'trees']
        >>> result.metrics["data"]["task"]
        'multiclass'
    """
    with _as_source(data) as source, _as_source(valid) as own_valid, _as_source(test) as own_test:
        options = keyed(
            source=source, valid=own_valid, test=own_test,
            target=target, task=task, cpu_lanes=cpu_lanes, repeats=repeats,
            gpus=_gpus(gpus),
            strategy=strategy, preset=preset, also=also, time_limit=time_limit,
            search=search, metric=metric, intervals=intervals, groups=groups,
        )  # fmt: skip
        if isinstance(config, Mapping):
            options = {**dotted(config), **options}
        file = Path(config) if isinstance(config, (str, Path)) else None
        folder = Path(out) if out else None
        resolved = resumed_config(folder, options) if resume else config_io.load(file=file, options=options)
        complete_environment()
        with open_display(quiet) as display:
            outcome = orchestrate.run(
                resolved, display, out=folder, title=_title(data, source), resume=resume
            )
    if outcome.targets:
        each = {
            found.results.data.target: found
            for found in map(read_run, (own.root for own in outcome.targets.values()))
        }
        return TargetsResult(path=outcome.paths.root, exit_code=outcome.exit_code, targets=each)
    assert outcome.results is not None
    return RunResult(path=outcome.paths.root, exit_code=outcome.exit_code, results=outcome.results)


def refit(
    run_dir: str | Path,
    *,
    more: Data = None,
    gpus: Literal["all"] | Sequence[int | str] | None = None,
    cpu_lanes: int | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
) -> RunResult:
    """Train the models of a finished run once more, on all of its rows; the same as ``sparkgpu refit``.

    `more` are new rows with the target, in any of the forms of `run`. Settings and figures are those of the
    run. The new run directory `out` (default: that of the run with ``-refit``) is a copy with new models.

    Raises `sparkgpu.core.errors.SparkgpuError` (a ValueError) with a short message, and leaves no folder, if
    a model cannot be trained again.

        >>> deployed = sparkgpu.refit("reports/wine", out="reports/wine-deployed", quiet=True)
        >>> deployed.metrics["refit"]["rows"] == deployed.metrics["data"]["rows"]
        True
    """
    from sparkgpu.runs.refit import refit as train  # loads pyarrow, which a run does not need

    with _as_source(more) as source, open_display(quiet) as display:
        found = train(
            run_dir,
            display,
            more=source,
            gpus=_gpus(gpus),
            cpu_lanes=cpu_lanes,
            out=Path(out) if out else None,
        )
    for note in found.notes:
        warnings.warn(note, stacklevel=2)
    return RunResult(path=found.paths.root, exit_code=0, results=found.results)


def _gpus(gpus: str | Sequence[int | str] | None) -> str | list[str] | None:
    return gpus if gpus is None or isinstance(gpus, str) else [str(gpu) for gpu in gpus]


def _title(data: Data, source: str | None) -> str | None:
    """The name of data that is not one of the user's files."""
    if source is None or isinstance(data, Path) or str(data) == source:
        return None
    return data if isinstance(data, str) else f"{type(data).__module__.partition('.')[0]} DataFrame"


@contextlib.contextmanager
def _as_source(data: Data) -> Iterator[str | None]:
    """The text of SOURCE for `data`; a DataFrame is kept in a private folder until the block ends."""
    if isinstance(data, str) and data.startswith(TABLE_PREFIX) and (session := _active_session()):
        data = session.table(data.removeprefix(TABLE_PREFIX))
    if data is None or isinstance(data, (str, Path)):
        yield None if data is None else str(data)
        return
    with tempfile.TemporaryDirectory(prefix="sparkgpu-data-", ignore_cleanup_errors=True) as folder:
        file = Path(folder, "dataframe.parquet")
        if _is_spark(data):
            _write_spark(data, file)
        elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "columns"):
            _write_arrow(data, file)
        else:
            kind = f"{type(data).__module__}.{type(data).__name__}"
            raise ConfigError(
                f"data is a {kind}; give a path, table:NAME, a Spark DataFrame, or a pandas, polars or other "
                "frame that exports Arrow."
            )
        yield str(file)


def _is_spark(data: object) -> TypeIs[SparkDataFrame]:
    """By name: a program that gives a path needs no Spark."""
    return type(data).__module__.startswith("pyspark.sql.")


def _active_session() -> SparkSession | None:
    """The Spark session of this process, if any: it may know tables that no other session knows."""
    import sys

    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _write_arrow(frame: ArrowStream, file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sparkgpu.predict.frames import as_reader

    reader = as_reader(frame)
    _refuse_twice(reader.schema.names)
    try:
        with pq.ParquetWriter(file, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
    except pa.ArrowException as error:
        raise DataError(f"the data cannot be written as Parquet: {error}. Convert that column.") from None


def _refuse_twice(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"the DataFrame has duplicate column names: {listed(twice)}. Give each column one name."
        )


def _write_spark(frame: SparkDataFrame, file: Path) -> None:
    """Write the rows ordered by their content: a DataFrame has no fixed order, and the split needs one."""
    from pyspark.sql import functions as F

    _refuse_twice(frame.columns)
    kinds = dict(frame.dtypes)
    hashed = [
        F.col("`" + name.replace("`", "``") + "`")
        for name in frame.columns
        if not kinds[name].startswith("map")
    ]
    frame.orderBy(F.xxhash64(*hashed)).write.parquet(str(file))
