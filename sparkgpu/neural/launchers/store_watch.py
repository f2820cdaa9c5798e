"""Ends the ranks of a gang on several machines once one is gone, or all of them train and none moves.

No process can look at those of another machine, so each rank counts in the store of the gang, in which all
look: its beats, and the looks of this thread, which goes on whatever the rank does. The process group's own
timeout must be longer: ranks may prepare, and read, far apart.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import product

from torch.distributed.distributed_c10d import Store

from sparkgpu.neural.launchers.heartbeat import WAITING, Heartbeat

_LOOK_EVERY_S = 0.5
_DONE = 2**40  # looks of a rank that is done


class StoreWatch(threading.Thread):
    """Calls `lost` if a rank does not look for `timeout_s` seconds, or none moves though all said they train.

    A rank that waits for another one tells it later than one that does not, which is more likely at fault.
    Looks are counted, not the time: a job may be suspended and go on.
    """

    def __init__(
        self, store: Store, heartbeat: Heartbeat, place: tuple[int, int], timeout_s: float,
        lost: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`place` is the rank, and the number of ranks."""
        super().__init__(daemon=True)
        self._store = store
        self._heartbeat = heartbeat
        self._rank, self._num_ranks = place
        self._timeout_s = timeout_s
        self._look_s = min(_LOOK_EVERY_S, timeout_s / 20)
        self._lost = lost
        self._ended = threading.Event()
        self._begun, self._beats, self._told = False, -1, 0

    def stop(self) -> None:
        """Nothing is watched any more, and others do not wait for this rank."""
        self._ended.set()
        self.join()
        with suppress(RuntimeError):  # the store's machine may have ended
            self._store.add(f"looks-{self._rank}", _DONE)

    def run(self) -> None:
        ranks = range(self._num_ranks)
        seen = {"looks": [0] * self._num_ranks, "beats": [0] * self._num_ranks}
        same = {kind: [0] * self._num_ranks for kind in seen}
        while not self._ended.wait(self._look_s):
            before = self._told
            try:
                self._store.add(f"looks-{self._rank}", 1)
                self._tell(self._own())
                if self._told != before:  # while it moves, it need not look at others
                    same = {kind: [0] * self._num_ranks for kind in seen}
                    continue
                for kind, rank in product(seen, ranks):
                    now = self._store.add(f"{kind}-{rank}", 0)
                    same[kind][rank] = same[kind][rank] + 1 if now == seen[kind][rank] else 0
                    seen[kind][rank] = now
            except RuntimeError as error:
                self._lost(f"the store on the first machine is gone ({error})")
                return
            works = [rank for rank in ranks if seen["looks"][rank] < _DONE]
            gone = [rank for rank in works if same["looks"][rank] * self._look_s >= self._timeout_s]
            if gone:
                self._lost(
                    f"rank {gone[0]} of {self._num_ranks} gave no sign of life for {self._timeout_s:.0f} s"
                )
                return
            is_long = min(same["beats"]) * self._look_s >= self._timeout_s
            if is_long and len(works) == self._num_ranks and all(now & 1 for now in seen["beats"]):
                self._end()
                return

    def _own(self) -> int:
        """Twice its beats, and 1 more if it trains: short work beside its steps is a part of that."""
        beats, is_training = self._heartbeat.state
        self._begun |= is_training
        moves, self._beats = beats != self._beats, beats
        return 2 * beats + (is_training or (self._begun and moves))

    def _tell(self, value: int) -> None:
        self._store.add(f"beats-{self._rank}", value - self._told)
        self._told = value

    def _end(self) -> None:
        frame = sys._current_frames()[threading.main_thread().ident or 0]  # noqa: SLF001
        at = traceback.extract_stack(frame)[-1]
        if WAITING.search(at.filename):
            self._ended.wait(2 * self._look_s)
        self._lost(
            f"a hang: no rank did anything for {self._timeout_s:.0f} s, and this one is at "
            f'"{at.filename}", line {at.lineno} in {at.name}'
        )
