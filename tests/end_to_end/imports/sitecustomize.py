"""Watches the imports of every Python process that finds this folder on its PYTHONPATH (see test_hangs.py).

SPARKGPU_IMPORTS names a folder. A first import by any thread except the main one is noted there and then
never ends, so that every thread that needs the same package waits forever, too. SPARKGPU_IMPORT_HANGS has the
form TEXT:MODULE: in a process whose command line contains TEXT, the main thread stops in the import of
MODULE, the first time only.
"""

import _frozen_importlib as bootstrap
import os
import sys
import threading
import time
from pathlib import Path

_FOR_EVER_S = 3600.0


def _watch(folder: Path, hangs: str) -> None:
    main = threading.get_ident()
    find_and_load = bootstrap._find_and_load
    words, _, module = hangs.partition(":")
    hangs_here = bool(hangs) and words in " ".join(sys.orig_argv)

    def watched(name, import_):  # type: ignore[no-untyped-def]
        if threading.get_ident() != main:
            with (folder / f"{os.getpid()}.threads").open("a") as file:
                file.write(f"{threading.current_thread().name} imports {name}\n")
            time.sleep(_FOR_EVER_S)
        elif hangs_here and name == module:
            try:
                (folder / "hung").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                time.sleep(_FOR_EVER_S)
        return find_and_load(name, import_)

    bootstrap._find_and_load = watched
    (folder / f"{os.getpid()}.watched").touch()


if "SPARKGPU_IMPORTS" in os.environ:
    _watch(Path(os.environ["SPARKGPU_IMPORTS"]), os.environ.get("SPARKGPU_IMPORT_HANGS", ""))
