"""On which cards H2O's XGBoost was seen to train: kept for each driver, kind of card and H2O.

The driver translates the library for a card that is newer than its machine code, which takes minutes, and
keeps the result in CUDA_CACHE_PATH. So one process of a machine probes while the others wait, and later runs
use the answer that is kept. A failure is not kept: another process may hold the card.
"""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.devices import Device, Machine
from sparkgpu.core.host.gpus import Gpu
from sparkgpu.core.rundir.events import WAITING_FOR_PROBE, EventWriter
from sparkgpu.core.rundir.files import write_text
from sparkgpu.h2o.startup import assembly_jar, digest_of, kept

_WAIT_S = 0.2


def cuda_cache() -> Path:
    """Where the driver keeps the code that it translated, for all runs."""
    return kept("cuda")


def is_proven(machine: Machine, devices: Sequence[Device]) -> bool:
    """Whether H2O's trees are known to train on all these GPUs with this driver."""
    visible = {device.visible for device in devices}
    return are_proven(machine.driver, [gpu for gpu in machine.gpus if gpu.uuid in visible])


def are_proven(driver: str | None, cards: Sequence[Gpu]) -> bool:
    with suppress(DeviceError):  # no H2O is here
        return bool(cards) and all(sign_of(driver, card).exists() for card in cards)
    return False


def sign_of(driver: str | None, card: Gpu) -> Path:
    """The file that is there if trees trained on such a card."""
    words = f"{driver}|{card.title}|{card.compute_capability}|{digest_of(assembly_jar())}"
    return kept(f"trains-{hashlib.sha256(words.encode()).hexdigest()[:16]}")


def prove(driver: str | None, card: Gpu) -> None:
    sign = sign_of(driver, card)
    with suppress(OSError):  # without it the next run probes again
        sign.parent.mkdir(parents=True, exist_ok=True)
        write_text(sign, f"{card.title}, driver {driver}\n")


@contextmanager
def one_at_a_time(events: EventWriter) -> Iterator[None]:
    """Wait for other processes of this machine that are inside."""
    lock = kept("probe.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError:  # no place to agree on: each for itself
        yield
        return
    with file:
        if not _locks(file.fileno()):
            with events.phase(WAITING_FOR_PROBE):
                while not _locks(file.fileno()):
                    time.sleep(_WAIT_S)
        yield


def _locks(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
