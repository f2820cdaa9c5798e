"""CUDA graphs: a training step captured once and started as a whole, and the reasons against it.

Nothing here has run on a GPU yet. So a first repetition is compared with a plain step, and whatever fails
leaves plain steps and a note.
"""

from __future__ import annotations

import torch

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.rundir.records import MemoryRecord
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.fixed_step import Work

_COPIES = 3  # of weights and moments while the first repetition is compared


class CudaGraph:
    """One captured step (`sparkgpu.neural.training.fixed_step.Repeat`)."""

    needs_proof = True

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph = torch.cuda.CUDAGraph()

    def warm(self, work: Work) -> None:
        """On the stream of the capture, where libraries keep their workspaces."""
        now = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):
            work()
        now.wait_stream(self._stream)

    def capture(self, work: Work) -> None:
        # Other threads, such as the one that fills a stream's next pool, may go on with their work.
        with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
            work()

    def replay(self) -> None:
        self._graph.replay()

    def drop(self) -> None:
        self._graph = torch.cuda.CUDAGraph()  # the other one's memory goes with it


def reason_against(strategy: Strategy, config: NeuralParameters, plan: MemoryRecord | None) -> str | None:
    """Why steps are started operation by operation; None if they may be captured."""
    if strategy.device.type != "cuda":
        return f"{strategy.device} has no CUDA graphs"
    if not config.cuda_graph:
        return "neural.cuda_graph is off"
    if strategy.name != "single":
        return f'only neural.strategy = "single" can be captured, not "{strategy.name}"'
    if strategy.scaler is not None:
        return "float16 scales its losses from step to step"
    if config.compile:
        return "neural.compile brings graphs of its own"
    if plan is not None and plan.budget_bytes < _with_graph(plan):
        return "the GPU's memory does not hold a captured step beside a plain one"
    return None


def _with_graph(plan: MemoryRecord) -> int:
    """A graph keeps the memory of its step, also while rows are evaluated or a smaller batch is learned."""
    besides = max(plan.step_bytes, plan.evaluation_bytes, _COPIES * plan.lasting_bytes)
    return plan.table_bytes + plan.lasting_bytes + plan.step_bytes + besides
