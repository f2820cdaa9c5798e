"""H2O's XGBoost library, unpacked once for all runs.

Each JVM would otherwise unpack its 150 MB anew, which takes 1.4 s of a processor and as much room on the
disk. H2O looks in ``java.library.path`` before its jar, so a JVM without the kept copy works, too.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from sparkgpu.core.errors import DeviceError

_NAME = "libxgboost4j_gpu.so"  # the one with threads; it trains on GPUs and on the CPU
_IN_JAR = f"lib/linux_64/{_NAME}"
_OF_JAVA = ("/usr/java/packages/lib", "/usr/lib64", "/lib64", "/lib", "/usr/lib")


def library_options(folder: Path) -> list[str]:
    """What a JVM must be told to load the library from `folder`; nothing if it is not there."""
    if not (folder / _NAME).exists():
        return []
    own = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return [f"-Djava.library.path={os.pathsep.join([str(folder), *filter(None, own), *_OF_JAVA])}"]


def unpack(jar: Path, folder: Path) -> None:
    """Put the library from the assembly `jar` into `folder`, unless it is there or the jar has none."""
    target = folder / _NAME
    if target.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f".{_NAME}-{os.getpid()}"
    try:
        with zipfile.ZipFile(jar) as packed:
            if _IN_JAR not in packed.namelist():
                return
            with packed.open(_IN_JAR) as source, own.open("wb") as file:
                shutil.copyfileobj(source, file, 2**20)
        own.replace(target)
    except zipfile.BadZipFile as error:
        raise DeviceError(f"{jar}: cannot be read ({error}). Install Sparkling Water again.") from None
    finally:
        own.unlink(missing_ok=True)
