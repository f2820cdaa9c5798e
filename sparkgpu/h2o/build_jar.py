"""Builds ``jars/front.jar`` from ``jars/src``: ``python -m sparkgpu.h2o.build_jar``, with a JDK 17.

The jar holds the few classes that stand in front of H2O's and Sparkling Water's own, compiled against the
pinned jars. Its bytes follow from the sources alone, and it holds their digests, so that an older jar is
found without a JDK.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from sparkgpu.core.errors import DeviceError
from sparkgpu.h2o.startup import FRONT_JAR, class_path

SOURCES = FRONT_JAR.parent / "src"
DIGESTS = "META-INF/sources.sha256"
"""The entry with a line for each source: its digest and its path."""

_RELEASE = 17  # other compilers write other bytes
_TIME = (1980, 1, 1, 0, 0, 0)


def build(jar: Path = FRONT_JAR) -> None:
    """Write the jar. Raises `DeviceError` if there is no JDK, or if a source does not compile."""
    javac = find_javac()
    with tempfile.TemporaryDirectory() as folder:
        sources = sorted(str(file) for file in SOURCES.rglob("*.java"))
        command = [
            javac, "--release", str(_RELEASE), "-g:none", "-proc:none", "-nowarn", "-encoding", "UTF-8",
            "-cp", os.pathsep.join(class_path()[1:]), "-d", folder, *sources,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise DeviceError(f"{SOURCES}: javac cannot compile the sources:\n{done.stderr.strip()}")
        entries = {str(file.relative_to(folder)): file.read_bytes() for file in Path(folder).rglob("*.class")}
    entries[DIGESTS] = digests().encode()
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as packed:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            packed.writestr(entry, entries[name])


def digests() -> str:
    """What the entry `DIGESTS` has to say for the sources as they are."""
    files = sorted(SOURCES.rglob("*.java"))
    return "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(SOURCES).as_posix()}\n"
        for file in files
    )


def find_javac() -> str:
    """The compiler of a JDK 17, that of ``JAVA_HOME`` before that on PATH. Raises `DeviceError`."""
    home = os.environ.get("JAVA_HOME")
    for javac in (str(Path(home) / "bin" / "javac") if home else None, shutil.which("javac")):
        if javac and Path(javac).exists():
            said = subprocess.run([javac, "-version"], capture_output=True, text=True).stdout
            if re.match(rf"javac {_RELEASE}\b", said):
                return javac
    raise DeviceError(
        f"javac {_RELEASE} was asked for, but neither JAVA_HOME nor PATH has it; install a JDK {_RELEASE}, "
        f"such as Debian's openjdk-{_RELEASE}-jdk-headless."
    )


if __name__ == "__main__":
    try:
        build()
    except DeviceError as error:
        sys.exit(f"sparkgpu: {error}")
