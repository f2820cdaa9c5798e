"""The ranks of XGBoost's own library, which grow one model from their shares of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import numpy as np
from numpy.typing import NDArray
from xgboost import collective
from xgboost.core import XGBoostError
from xgboost.tracker import RabitTracker

from sparkgpu.trials.engine import Ranks

_PATIENCE_S = 600
"""So long a rank waits for another one, which reads its rows or stalls, before it fails."""

Place = Mapping[str, str | int]
"""Where ranks find each other, in XGBoost's words."""


@contextmanager
def meeting(host: str, count: int) -> Iterator[Place]:
    """The place where `count` ranks meet, on this machine, within the block."""
    tracker = RabitTracker(n_workers=count, host_ip=host, sortby="task")
    try:
        tracker.start()
        yield tracker.worker_args()
    finally:
        with suppress(XGBoostError):  # it complains of lost ranks, which others report
            tracker.free()


class XGBoostRanks(Ranks):
    """The ranks of the communicator that `joined` opened."""

    def __init__(self) -> None:
        self.rank, self.count = collective.get_rank(), collective.get_world_size()

    def summed(self, values_K: NDArray[np.float64]) -> NDArray[np.float64]:
        return collective.allreduce(values_K, collective.Op.SUM)

    def told(self, flag: bool) -> bool:
        return collective.broadcast(flag, root=0)


@contextmanager
def joined(place: Place, rank: int) -> Iterator[XGBoostRanks]:
    """Make this process the rank of that number until the block ends, for which all of them wait."""
    with collective.CommunicatorContext(**place, dmlc_task_id=f"{rank:08d}", dmlc_timeout=_PATIENCE_S):
        yield XGBoostRanks()
