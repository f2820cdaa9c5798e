"""Writes and reads the files of a run.

Files are the interface between processes, so a file is complete or absent: it is written under a temporary
name in the same folder and then renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from sparkgpu.core.errors import ConfigError


class Record(BaseModel):
    """Base of the records that pass between processes as JSON: immutable; refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Name = Annotated[str, StringConstraints(pattern=r"^[^./\\\x00-\x1f][^/\\\x00-\x1f]*$")]
"""The name of a model or a trial, which is a part of paths: a run folder may come from somebody else."""

AnyRecord = TypeVar("AnyRecord", bound=Record)


class Part(Record):
    """Base of the records of files that outlive their version: keys that a later one may add are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


UNREADABLE = (OSError, ValueError, KeyError)
"""What reading a file that is gone, cut or of another version may raise."""


def write_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write `text` so that a reader sees the whole file or no file. The umask is taken from `mode`."""
    write_bytes(path, text.encode(), mode=mode)


def write_bytes(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """As `write_text`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)  # of a killed process, or planted: a new file is ours alone
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        error.filename = str(path.parent)
        raise


def remove_half_written(folder: Path) -> None:
    """Remove what killed processes had begun to write below a folder that nobody writes to now."""
    for file in folder.rglob(".*"):
        if re.fullmatch(r"\..+\.\d+", file.name):
            file.unlink(missing_ok=True)


def write_json(path: Path, value: Record | dict[str, Any]) -> None:
    """Write a record or a dictionary as JSON, complete or not at all. Refuses NaN, which is not JSON."""
    data = value.model_dump(mode="json") if isinstance(value, Record) else value
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def digest(file: Path) -> str:
    """The content in short, as ``b2sum`` prints it."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def sync(path: Path) -> None:
    """Wait until the file, or the entries of the folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def synced_digest(file: Path) -> str:
    sync(file)
    return digest(file)


_DAMAGED = "It is damaged, or of another version of sparkgpu; start a new run, or use that version."


def read_json(path: Path) -> dict[str, Any]:
    """Raises `ConfigError` if the file holds no JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: it is not JSON ({error}). {_DAMAGED}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: it is not a JSON object. {_DAMAGED}")
    return data


def read_record(path: Path, kind: type[AnyRecord], otherwise: str = _DAMAGED) -> AnyRecord:
    """Read a record that `write_json` wrote, here or in another version.

    Raises `ConfigError` with the first fault and with `otherwise`, a sentence on what to do.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(f"{path}: {place}: {first['msg']}. {otherwise}") from None


def read_optional(path: Path, kind: type[AnyRecord]) -> AnyRecord | None:
    """As `read_record`; None if the file is gone or cannot be read."""
    with suppress(*UNREADABLE):
        return read_record(path, kind)
    return None
