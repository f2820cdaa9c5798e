"""How ranks on several machines find each other: through torchrun's own store, once for each attempt.

That store outlives an attempt and keeps the addresses of lost ranks, so each attempt uses its own part of the
store. torchrun's count of restarts cannot name the part: the agent of each machine counts only its own
restarts, so the counts may differ after a loss. Instead the first rank counts the attempts and tells the
others.
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
    """Meet the other ranks named in the environment. Returns the number of the attempt and its store.

    Raises torch's `DistStoreError`, or `TimeoutError`, if they do not come within a minute.
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
    # Without agents, the first rank owns the store, which ends with it.
    number = _agreed(tcp, rank, world_size) if agents else restarts()
    return number, dist.PrefixStore(f"ranks/attempt-{number}", tcp)  # type: ignore[attr-defined]


def restarts() -> int:
    """How often this machine's agent has started its ranks again."""
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def _agreed(store: Store, rank: int, world_size: int) -> int:
    """The number of this attempt, from the first rank.

    A rank asks under a new name, since the store still holds the questions and answers of lost attempts. The
    first rank answers until all have confirmed the answer.
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
