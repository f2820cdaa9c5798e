"""Runs in odd surroundings: paths, language, home and limits that a user may have. Seconds are of the run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from injected import CASE_S, OPTIONS, injected
from running import COMMAND

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(CASE_S)]

WITHOUT_JVM = ("--set", "trees.engine=lightgbm")
OCCASIONS = {
    "with H2O": (),
    "without a JVM": WITHOUT_JVM,
    "two ranks": (*WITHOUT_JVM, "--cpu-lanes", "2", "--strategy", "ddp", "--repeats", "1"),
}
PATHS = {
    "blanks in every path": "a b  c",
    "other letters in every path": "größe 名 🦉",
    "paths of 200 characters": "long " * 25,
    "quotes and signs in every path": "it's $HOME & (more); %x, #1",
}
SURROUNDINGS: dict[str, Mapping[str, str | None]] = {
    "HOME that cannot be written": {"HOME": "/sys"},
    "no HOME": {"HOME": None},
    "LC_ALL=C": {"LC_ALL": "C", "LANG": "C"},
    "no PATH": {"PATH": None},
    "another time zone": {"TZ": "Pacific/Apia"},
}


def changed(surroundings: Mapping[str, str | None]) -> dict[str, str]:
    found = {**os.environ, **surroundings}
    return {name: value for name, value in found.items() if value is not None}


def limited(limit: str, wine: Path, options: Iterable[str]) -> list[str | Path]:
    """The command of a run in a shell with this limit."""
    return ["bash", "-c", f'ulimit {limit}; exec "$@"', "--", *COMMAND, "run", wine, *OPTIONS, *options]


@pytest.mark.parametrize("occasion", OCCASIONS)
@pytest.mark.parametrize("fault", PATHS)
def test_paths(fault: str, occasion: str, wine: Path, tmp_path: Path) -> None:
    folder = tmp_path / PATHS[fault].strip()
    folder.mkdir()
    with injected(fault, occasion, wine, folder, *OCCASIONS[occasion]) as case:
        case.ends("finished", code=0, within_s=150)


@pytest.mark.parametrize("occasion", OCCASIONS)
@pytest.mark.parametrize("fault", SURROUNDINGS)
def test_variables(fault: str, occasion: str, wine: Path, tmp_path: Path) -> None:
    own, options = changed(SURROUNDINGS[fault]), OCCASIONS[occasion]
    with injected(fault, occasion, wine, tmp_path, *options, environ=own) as case:
        case.ends("finished", code=0, within_s=150)


@pytest.mark.parametrize("occasion", OCCASIONS)
@pytest.mark.parametrize("limit", ["-Sn 256", "-Hc 0", "-Ss 1024", "-v 4194304"])
def test_limits_that_suffice(limit: str, occasion: str, wine: Path, tmp_path: Path) -> None:
    command = limited(limit, wine, OCCASIONS[occasion])
    with injected(f"ulimit {limit}", occasion, wine, tmp_path, command=command) as case:
        case.ends("finished", code=0, within_s=150)


@pytest.mark.parametrize("limit", ["-n 300", "-n 200", "-n 100", "-v 262144", "-v 1048576", "-v 3145728"])
def test_too_few_open_files_or_addresses_are_refused(limit: str, wine: Path, tmp_path: Path) -> None:
    command, (name, value) = limited(limit, wine, ()), limit.split()
    with injected(f"ulimit {name}", value, wine, tmp_path, command=command) as case:
        case.ends("refused", code=3, said="ulimit")


@pytest.mark.parametrize("occasion", OCCASIONS)
def test_letters_that_the_locale_cannot_name_are_refused(occasion: str, wine: Path, tmp_path: Path) -> None:
    own = changed({"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"})
    folder = tmp_path / "größe 名"
    folder.mkdir()
    fault, options = "LC_ALL=C, PYTHONUTF8=0, other letters", OCCASIONS[occasion]
    with injected(fault, occasion, wine, folder, *options, environ=own) as case:
        case.ends("refused", code=3, said="Set LC_ALL=C.UTF-8, and unset PYTHONUTF8")
