"""A rank's signs of life: its process, whether it trains, and the time of its last progress, for others.

A rank that waits for another rank in a collective operation looks like one that hangs, so the time of the
last step does not show which is at fault. The Python stack does: a rank writes it on `STACK_SIGNAL`, even
from within C code. A rank that cannot write it is the one at fault. A rank that is asked to end also writes
its stack; a killed one cannot.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import re
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

STACK_SIGNAL = signal.SIGUSR2

SLOW_WORK = 10
"""Reading, saving and predicting may take this many times as long as a step."""

WAITING = re.compile(r"[/\\]torch[/\\](distributed|autograd|nn[/\\]parallel)[/\\]|checkpoint")
"""The innermost position of a rank that waits for another one."""

Kind = Literal["heartbeat", "stack", "done", "error.json", "ended"]
_LAYOUT = struct.Struct("<q?qd")  # of a `Sign`


class Sign(NamedTuple):
    """The content of a heartbeat file. `at` is in seconds of the system's monotonic clock.

    It `is_training` between its first and last step, but not at work that may take longer than a step.
    """

    process: int
    is_training: bool
    beats: int
    at: float


class Heartbeat:
    """This rank's own heartbeat; a beat costs less than a microsecond and never waits."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with rank_file(folder, rank, "heartbeat").open("w+b") as file:
            file.truncate(_LAYOUT.size)
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._is_training, self._beats = False, 0
        self._stacks = rank_file(folder, rank, "stack").open("w", encoding="utf-8")
        faulthandler.register(STACK_SIGNAL, file=self._stacks, all_threads=False)
        self._last_stack = rank_file(folder, rank, "ended").open("w", encoding="utf-8")
        faulthandler.register(signal.SIGTERM, file=self._last_stack, all_threads=False, chain=True)
        self.beat()

    @property
    def state(self) -> tuple[int, bool]:
        """Its beats so far, and whether it trains."""
        return self._beats, self._is_training

    def beat(self) -> None:
        self._beats += 1
        _LAYOUT.pack_into(self._memory, 0, os.getpid(), self._is_training, self._beats, time.monotonic())

    def step(self) -> None:
        self._is_training = True
        self.beat()

    @contextmanager
    def slow_work(self) -> Iterator[None]:
        """Work that may take long without a beat: others wait longer until it ends."""
        before, self._is_training = self._is_training, False
        self.beat()
        try:
            yield
        finally:
            self._is_training = before
            self.beat()


def read_sign(folder: Path, rank: int) -> Sign | None:
    """A rank's latest sign of life; None before the first."""
    try:
        data = rank_file(folder, rank, "heartbeat").read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _LAYOUT.size or not any(data):
        return None
    return Sign(*_LAYOUT.unpack(data))


def rank_file(folder: Path, rank: int, kind: Kind) -> Path:
    """`done` is there after success, `error.json` after a failure; `ended` has a stack once asked to end."""
    return folder / f"rank-{rank}.{kind}"
