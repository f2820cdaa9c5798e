"""The runs to compare, read once, and which of them have the same table and the same test rows."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparkgpu.errors import ConfigError, SparkgpuError
from sparkgpu.report.pictures.shared import distinct
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results, read_results
from sparkgpu.score.predictions import LabelReader, Labels
from sparkgpu.table.schema import TableSchema, read_schema
from sparkgpu.words import listed

_MOST_LETTERS = 32  # of a run's name; the table of the runs has the whole of it


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A run and its short name here; `schema` and `test` are None if its table is not in its folder."""

    name: str
    paths: RunPaths
    results: Results
    schema: TableSchema | None
    test: Labels | None

    @property
    def table(self) -> tuple[object, ...]:
        """What makes two tables the same: the rows' content in any order, the target, and the weights."""
        data = self.results.data
        weight = self.schema.weight if self.schema else None
        return data.fingerprint, data.target, data.task, data.classes, weight

    def settings(self) -> dict[str, str]:
        """``run.toml`` by dotted keys, as text; empty if the file is gone."""
        if not self.paths.config.is_file():
            return {}
        with self.paths.config.open("rb") as file:
            return dict(_flat(tomllib.load(file)))

    def valid_rows(self) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        """The ids of the validation rows (of all folds together); None if they cannot be read."""
        if self.schema is None:
            return None
        try:
            return LabelReader(self.paths, self.schema).all("valid").row_id_N
        except SparkgpuError:
            return None


def read_runs(folders: Sequence[Path]) -> tuple[Compared, ...]:
    """The runs in the order given. Raises `ConfigError` unless they are finished, several, and different."""
    if len(folders) < 2:
        one = f"{folders[0]} alone was given" if folders else "no run was given"
        raise ConfigError(f"compare: {one}. Give the folders of two or more finished runs.")
    seen: dict[bytes, Path] = {}
    for folder in folders:
        file = RunPaths(root=folder).metrics
        if not file.is_file():
            raise ConfigError(f"{folder}: it holds no metrics.json. Give the folders of finished runs.")
        content = file.read_bytes()
        if content in seen:
            raise ConfigError(f"{seen[content]} and {folder}: they hold the same run. Name each run once.")
        seen[content] = folder
    names = short_names(folders)
    return tuple(_read(name, RunPaths(root=folder)) for name, folder in zip(names, folders, strict=True))


def short_names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names, or their whole paths if two have the same; long ones without their middle."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    return distinct(names, _MOST_LETTERS)


def boards_of(runs: Sequence[Compared]) -> list[tuple[Compared, ...]]:
    """The runs in groups that were scored on the same rows of the same table, in the order given."""
    groups: list[list[Compared]] = []
    for run in runs:
        own = next((group for group in groups if _same_rows(group[0], run)), None)
        if own is None:
            groups.append([run])
        else:
            own.append(run)
    return [tuple(group) for group in groups]


def why_apart(boards: Sequence[Sequence[Compared]]) -> str | None:
    """Why there is no single leaderboard, in one sentence; None if there is one."""
    if len(boards) < 2:
        return None
    unread = [run.name for board in boards for run in board if run.test is None]
    if unread:
        return (
            f"No leaderboard ranks all of them: the folder of {listed(unread)} lacks its table, so the test "
            "rows cannot be checked."
        )
    kinds = {(run.results.data.target, run.results.data.task) for board in boards for run in board}
    if len(kinds) > 1:
        what = listed(f"{target} ({task})" for target, task in sorted(kinds))
        return f"No leaderboard ranks all of them: the runs predict different targets, {what}."
    tables = {run.table for board in boards for run in board}
    if len(tables) > 1:
        return f"No leaderboard ranks all of them: the runs are of {len(tables)} different tables."
    return (
        "No leaderboard ranks all of them: the runs are of one table, but they drew different test rows. The "
        "same seed and [split] give the same rows."
    )


def _read(name: str, paths: RunPaths) -> Compared:
    results = read_results(paths)
    schema = test = None
    if paths.schema.is_file():
        schema = read_schema(paths)
        try:
            test = LabelReader(paths, schema).of("test")
        except SparkgpuError:
            test = None
    return Compared(name=name, paths=paths, results=results, schema=schema, test=test)


def _same_rows(a: Compared, b: Compared) -> bool:
    """Row ids alone are positions in the source, which may have been written in another order."""
    if a.test is None or b.test is None or a.table != b.table:
        return False
    return np.array_equal(a.test.row_id_N, b.test.row_id_N) and np.array_equal(a.test.label_N, b.test.label_N)


def _flat(values: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for place, item in enumerate(value):
                yield from _flat(item, f"{prefix}{key}.{item.get('name', place)}.")
        else:
            yield f"{prefix}{key}", _text(value)


def _text(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
