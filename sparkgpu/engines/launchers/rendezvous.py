"""How the ranks of several machines find each other: at torchrun's own store, once for each attempt.

That store outlives an attempt, and with it the addresses of ranks that are gone; so each attempt has a part
of its own. Which one they cannot tell from torchrun's count of restarts: each machine's agent counts those it
began itself, and after a loss the counts may differ. So the first rank counts, and tells the others.
"""

from __future__ import annotations

import os
import time
import uuid
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

_MEETING_S = 60.0
_POLL_S = 0.02


def meet() -> tuple[int, Store]:
    """Meet the other ranks that the environment tells of: the number of the attempt, and its store.

    Raises torch's `DistStoreError`, or `TimeoutError`, when they do not come within a minute.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    tcp = dist.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world_size,
        is_master=not agents and rank == 0,
        timeout=timedelta(seconds=_MEETING_S),
    )
    # Without agents the store is the first rank's and ends with it.
    number = _agreed(tcp, rank, world_size) if agents else restarts()
    return number, dist.PrefixStore(f"ranks/attempt-{number}", tcp)  # type: ignore[attr-defined]


def restarts() -> int:
    """How often this machine's agent has started its ranks again."""
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def _agreed(store: Store, rank: int, world_size: int) -> int:
    """The number that the first rank gives this attempt.

    A rank asks under a name that no rank had before, since the store still holds what those of lost attempts
    asked and were told. The first rank answers until all have confirmed that they heard it.
    """
    if rank != 0:
        name = uuid.uuid4().hex
        store.set(f"asks-{rank}", name)
        number = int(store.get(f"told-{name}"))
        store.add(f"heard-{number}", 1)
        return number
    number = store.add("attempts", 1) - 1
    told: set[str] = set()
    deadline = time.monotonic() + _MEETING_S
    while store.add(f"heard-{number}", 0) < world_size - 1:
        for other in range(1, world_size):
            if store.check([f"asks-{other}"]) and (name := store.get(f"asks-{other}").decode()) not in told:
                store.set(f"told-{name}", str(number))
                told.add(name)
        if time.monotonic() > deadline:
            raise TimeoutError(f"the {world_size} ranks did not all come within {_MEETING_S:g} s")
        time.sleep(_POLL_S)
    return number
