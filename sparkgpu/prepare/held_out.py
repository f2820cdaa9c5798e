"""The user's own validation and test rows (`data.valid`, `data.test`): what has to agree with the source."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.core.table.source import Source, table_files
from sparkgpu.core.words import listed


def check_splits_of(config: RunConfig) -> None:
    """Refuse a split that leaves no place for rows of the user's own. Raises `ConfigError`."""
    for split in ("valid", "test"):
        name, key = getattr(config.data, split), f"data.{split}"
        if name is None:
            continue
        if config.split.kind == "column":
            raise ConfigError(
                f'{key} {name}: with split.kind = "column" that column says which rows these are. Leave one '
                "of both out."
            )
        if split == "valid" and config.split.folds:
            raise ConfigError(
                f"{key} {name}: in cross-validation each fold is validated by the others. Leave split.folds "
                "out, or the validation rows."
            )


def check_files(source: Source) -> None:
    """Refuse a file that is there twice: its rows would be trained on and tested. Raises `ConfigError`."""
    seen = dict.fromkeys(_files(source), "the source")
    for split, table in source.held_out.items():
        for file in _files(table):
            if file in seen:
                raise ConfigError(
                    f"data.{split} {table.name}: {file} is in {seen[file]}, too. Give each its own rows."
                )
            seen[file] = f"data.{split}"


def _files(table: Source) -> list[Path | str]:
    path = Path(table.location)
    if not path.exists():
        return [table.lasting]
    return [*table_files(path)] if path.is_dir() else [path]


def check_held_out(name: str, types: Iterable[str], needed: Iterable[str], ignore: Collection[str]) -> None:
    """Refuse validation or test rows, in the table `name`, that lack a column of the source."""
    missing = sorted(set(needed) - set(types) - set(ignore))
    if missing:
        raise DataError(
            f"{name}: it lacks {listed(missing)}, which the source has. Give rows with the same columns, or "
            "name those columns in data.ignore."
        )


def other_type(name: str, column: str, found: str, needed: str) -> DataError:
    """The refusal of a column whose values are of another kind than the source's."""
    return DataError(
        f"{name}: its column {column!r} is of type {found}, and {needed} in the source. Write it so."
    )
