"""A capture that puts torch back as it was if it fails, which torch's own does not (read in 2.13).

`torch.cuda.graph` ends an invalidated capture with an error, before it puts back the stream and before the
allocator stops to send tensors to the graph's pool. And the allocators go on to ask the graph which streams
it captures, so a failed one must outlive them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_failed: list[torch.cuda.CUDAGraph] = []


def capture(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, work: Callable[[], None]) -> None:
    """Learn the work, without doing it. Raises the first error of a capture that fails."""
    device, pool = stream.device, torch.cuda.graph_pool_handle()
    try:
        with (
            torch.cuda.stream(torch.cuda.current_stream(device)),
            # Other threads, such as the one that fills a stream's next pool, may go on with their work.
            torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
        ):
            work()
    except RuntimeError as error:
        _give_back(graph, device.index, pool)
        cause = error.__context__  # why it became invalid; `error` only says that it did
        raise cause if isinstance(cause, RuntimeError) else error from None


def _give_back(graph: torch.cuda.CUDAGraph, device: int, pool: Any) -> None:
    try:
        torch._C._cuda_endAllocateToPool(device, pool)
    except RuntimeError:  # the capture ended as it should, after work that failed: for lack of memory, say
        return
    torch._C._cuda_releasePool(device, pool)
    _failed.append(graph)
