"""Ranks of several machines end soon once all train and none moves, and never because one is slow."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from sparkgpu.neural.launchers import store_watch
from sparkgpu.neural.launchers.heartbeat import Heartbeat
from sparkgpu.neural.launchers.store_watch import StoreWatch

TIMEOUT_S = 0.2
LONG_S = 3 * TIMEOUT_S

pytestmark = pytest.mark.process


class Gang:
    """The heartbeats and watches of two ranks; `lost` has what their watches said."""

    def __init__(self, folder: Path) -> None:
        store = dist.HashStore()
        self.hearts = [Heartbeat(folder, rank) for rank in range(2)]
        self.lost: list[str] = []
        self.watches = [
            StoreWatch(store, heart, (rank, 2), TIMEOUT_S, self.lost.append)
            for rank, heart in enumerate(self.hearts)
        ]
        for watch in self.watches:
            watch.start()

    def during(self, seconds: float, step: Callable[[], None] = lambda: None) -> list[str]:
        """What was said until then; something ends it early."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.lost:
            step()
            time.sleep(TIMEOUT_S / 50)
        return self.lost


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path)
    yield made
    for watch in made.watches:
        watch.stop()


def test_once_all_train_a_stall_is_found_and_says_where_the_rank_is(gang: Gang) -> None:
    for heart in gang.hearts:
        heart.step()
    began = time.monotonic()
    found = gang.during(60)
    assert time.monotonic() - began >= TIMEOUT_S
    assert found[0].startswith('a hang: no rank did anything for 0 s, and this one is at "')


def test_a_rank_that_still_prepares_or_reads_is_waited_for(gang: Gang) -> None:
    gang.hearts[0].step()  # and waits in its first step for the other one
    assert gang.during(LONG_S) == []
    gang.hearts[1].step()
    with gang.hearts[1].slow_work():
        assert gang.during(LONG_S) == []
    assert gang.during(60)


def test_a_rank_that_moves_or_is_done_makes_none_lost(gang: Gang) -> None:
    for heart in gang.hearts:
        heart.step()

    def short_work() -> None:  # such as the next batch of each step
        with gang.hearts[1].slow_work():
            gang.hearts[1].step()

    assert gang.during(LONG_S, short_work) == []
    gang.watches[1].stop()
    assert gang.during(LONG_S) == []


def test_a_rank_whose_process_is_gone_is_named_whatever_it_did(gang: Gang) -> None:
    gang.watches[1]._ended.set()  # as if it were killed: it says nothing more
    assert gang.during(60) == ["rank 1 of 2 gave no sign of life for 0 s"]


def test_a_rank_that_waits_for_another_one_speaks_later(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    gang.watches[0]._end()
    busy_s = time.monotonic() - began
    monkeypatch.setattr(store_watch, "WAITING", re.compile("."))
    gang.watches[0]._end()
    assert time.monotonic() - began - busy_s >= 2 * gang.watches[0]._look_s
    assert len(gang.lost) == 2


def test_a_store_that_is_gone_ends_the_rank(tmp_path: Path) -> None:
    class Gone(dist.HashStore):
        def add(self, key: str, value: int) -> int:
            raise dist.DistNetworkError("connection reset")

    lost: list[str] = []
    watch = StoreWatch(Gone(), Heartbeat(tmp_path, 0), (0, 2), TIMEOUT_S, lost.append)
    watch.start()
    watch.join(60)
    watch.stop()
    assert lost == ["the store on the first machine is gone (connection reset)"]
