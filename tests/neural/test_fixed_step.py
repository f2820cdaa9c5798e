"""A step that a CUDA graph can repeat, shown without a GPU by what it does; the graph itself needs one."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from copy import copy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from planted import alone, fit, parameters, plant
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from watched_steps import BATCH, CASES, META, ROWS, Again, Copies, meta_training, trained

from sparkgpu.core.rundir.records import MemoryRecord
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training import fixed_step, train
from sparkgpu.neural.training.cuda_graph_internals import capture
from sparkgpu.neural.training.fixed_step import FixedStep, Work, reason_against

CAPTURED = [case for case in CASES if case != "realmlp"]
WHOLE_STEPS = 2 * (ROWS // BATCH)  # of two epochs; the smaller last batch is plain


@pytest.mark.parametrize(("case", "captured"), [*((case, False) for case in CASES), ("tabm, Muon", True)])
def test_no_step_of_an_epoch_waits_for_the_device(case: str, captured: bool) -> None:
    copies, marks = Copies(), list[int]()
    with meta_training(), copies:
        strategy, training = trained(
            case,
            META,
            graph=Again() if captured else None,
            on_step=lambda: marks.append(len(copies.lines)),
        )
    # An epoch copies the order of its rows to the device, then no step copies anything.
    assert [line.split(":")[0] for line in copies.lines[marks[0] :]] == ["resident.py"]
    assert training.notes == []
    # After an epoch its loss is read, and what one pass over the validation rows found.
    assert strategy.reads == 2 * 2


def assert_alike(found: Strategy, expected: Strategy) -> None:
    for name, value in expected.gather().items():
        torch.testing.assert_close(found.gather()[name], value, atol=2e-5, rtol=1e-4)


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What a CUDA graph would hold: operations, their numbers, the addresses of what they did not make."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines: list[tuple[str, tuple[Any, ...]]] = []
        self._made: dict[int, int] = {}
        self._kept: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = tuple(map(self._shown, tree_leaves((args, kwargs))))
        out = func(*args, **(kwargs or {}))
        if func.namespace == "profiler":
            return out
        self.lines.append((str(func), given))
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                self._kept.append(value)  # so that no address is given twice
                self._made.setdefault(value.untyped_storage().data_ptr(), len(self.lines))
        return out

    def _shown(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        address = value.untyped_storage().data_ptr()
        place = ("made by line", self._made[address]) if address in self._made else ("at", address)
        return (*place, value.storage_offset(), tuple(value.shape), value.stride(), value.dtype)


class Taped(Again):
    """Records each repetition."""

    def __init__(self) -> None:
        super().__init__()
        self.tapes: list[list[tuple[str, tuple[Any, ...]]]] = []

    def replay(self) -> None:
        with Tape() as tape:
            super().replay()
        self.tapes.append(tape.lines)


@pytest.mark.parametrize("case", CAPTURED)
def test_every_repetition_is_the_captured_one_in_operations_numbers_and_addresses(case: str) -> None:
    repeat = Taped()
    trained(case, graph=repeat, weighted=True)
    assert repeat.warmed == 3 and repeat.replayed == len(repeat.tapes) == WHOLE_STEPS - 3
    for tape in repeat.tapes[1:]:
        assert tape == repeat.tapes[0]
    names = " ".join(name for name, _ in repeat.tapes[0])
    assert "random" not in names and "_local_scalar_dense" not in names.replace("tensor_lr", "")


@pytest.mark.parametrize("case", CAPTURED)
def test_repeated_steps_learn_what_plain_ones_learn(case: str) -> None:
    settings: dict[str, Any] = {"task": "regression", "weighted": True}
    settings |= {"learning_rate": 3e-3, "weight_decay": 0.3}
    plain, before = trained(case, **settings)
    repeat = Again()
    captured, after = trained(case, graph=repeat, **settings)
    assert repeat.replayed == WHOLE_STEPS - 3
    assert_alike(captured, plain)
    for old, new in zip(before.curve, after.curve, strict=True):
        assert (new.train, new.valid) == pytest.approx((old.train, old.valid), rel=1e-5)


class Forgetful(Again):
    """Repeats a step with the learning rate of the capture, as a graph does with a number from Python."""

    needs_proof = True

    def capture(self, work: Work) -> None:
        super().capture(work)
        self._kept = [rate.clone() for rate in self.rates]

    def replay(self) -> None:
        for rate, value in zip(self.rates, self._kept, strict=True):
            rate.copy_(value)
        super().replay()


def test_a_repetition_that_is_not_the_step_is_not_used_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repeat = Forgetful()

    def watched(*given: Any) -> FixedStep:
        step = FixedStep(*given)
        repeat.rates = step._rates
        return step

    monkeypatch.setattr(train, "FixedStep", watched)
    plain, _ = trained("mlp")
    found, training = trained("mlp", graph=repeat)
    said = "a repeated step gave other weights than a plain one"
    assert training.plain_steps == said
    assert training.notes == [f"steps were started operation by operation: {said}"]
    assert_alike(found, plain)


class Exact(Again):
    """Is compared with the step, as a CUDA graph is."""

    needs_proof = True


def test_the_proof_of_a_repetition_leaves_no_trace() -> None:
    unproven, _ = trained("tabm, Muon", graph=Again())
    proven, training = trained("tabm, Muon", graph=Exact())
    assert training.plain_steps is None
    for name, value in unproven.gather().items():
        assert torch.equal(proven.gather()[name], value)


class Failing(Exact):
    """Fails to capture, or runs out of memory when a repetition has changed the weights."""

    def __init__(self, error: Exception, *, at_replay: bool = False) -> None:
        super().__init__()
        self._error, self._at_replay = error, at_replay

    def capture(self, work: Work) -> None:
        super().capture(work)
        if not self._at_replay:
            raise copy(self._error)

    def replay(self) -> None:
        super().replay()
        raise copy(self._error)  # its traceback would keep all that it passed


NO_ROOM = torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.parametrize(
    ("repeat", "said"),
    [
        (Failing(RuntimeError("not permitted\nmore")), "capturing failed (not permitted)"),
        (Failing(NO_ROOM), "the device's memory does not hold a captured step"),
        (Failing(NO_ROOM, at_replay=True), "the device's memory does not hold a captured step"),
    ],
)
def test_a_capture_that_fails_leaves_plain_steps_and_a_note(repeat: Failing, said: str) -> None:
    plain, _ = trained("mlp")
    found, training = trained("mlp", graph=repeat)
    assert training.plain_steps == said
    assert_alike(found, plain)


class FailsOnce(Failing):
    """Finds no memory for its first capture, as beside XGBoost while that makes its bins."""

    def capture(self, work: Work) -> None:
        if self.warmed > 3:
            Again.capture(self, work)
        else:
            super().capture(work)

    replay = Again.replay


def test_a_capture_that_found_no_memory_for_a_short_while_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = Mock(return_value=True)
    monkeypatch.setattr(fixed_step, "wait_for_room", waited)
    plain, _ = trained("mlp", epochs=4)
    repeat = FailsOnce(NO_ROOM)
    found, training = trained("mlp", graph=repeat, epochs=4)
    assert training.plain_steps is None and training.notes == [] and repeat.replayed > 5
    assert_alike(found, plain)
    assert waited.call_count == 1
    _, training = trained("mlp", graph=Failing(NO_ROOM), epochs=4)
    assert training.plain_steps == "the device's memory does not hold a captured step"
    assert waited.call_count == 2


class OnDevice:
    """What torch has of a device where there is none: its streams, and what a capture tells the allocator."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: Any = SimpleNamespace(name="steps", device=torch.device("cuda:0"))
        self.calls: list[tuple[Any, ...]] = []
        outer = self

        class OnStream:
            def __init__(self, stream: Any) -> None:
                self.stream = stream

            def __enter__(self) -> None:
                self.before, outer.now = outer.now, self.stream

            def __exit__(self, *error: object) -> None:
                outer.now = self.before

        monkeypatch.setattr(torch.cuda, "stream", OnStream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self.now)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 5))
        for name in ("synchronize", "empty_cache"):
            monkeypatch.setattr(torch.cuda, name, lambda: None)
        monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
        for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            monkeypatch.setattr(torch._C, name, partial(self._note, name))

    def _note(self, *call: Any) -> None:
        self.calls.append(call)


class InvalidGraph:
    """A capture that became invalid ends with an error, and the allocators know nothing of it."""

    def capture_begin(self, *pool: Any, **settings: Any) -> None:
        assert pool == ((0, 5),) and settings["capture_error_mode"] == "thread_local"

    def capture_end(self) -> None:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


def may_not() -> None:
    raise RuntimeError("CUDA error: operation not permitted when stream is capturing")


def test_an_invalidated_capture_puts_stream_and_allocator_back_and_tells_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = OnDevice(monkeypatch)
    graph, stream, before = InvalidGraph(), SimpleNamespace(device=torch.device("cuda:0")), on.now
    known = weakref.ref(graph)
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        capture(graph, stream, may_not)  # type: ignore[arg-type]
    assert on.now is before
    assert on.calls == [("_cuda_endAllocateToPool", 0, (0, 5)), ("_cuda_releasePool", 0, (0, 5))]
    del graph
    assert known() is not None  # the allocators may ask it


def test_a_capture_that_ends_though_its_work_found_no_memory_is_given_back_by_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Graph(InvalidGraph):
        def capture_end(self) -> None:
            pass

    def no_room() -> None:
        raise copy(NO_ROOM)

    def is_none(*_: Any) -> None:
        raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    on = OnDevice(monkeypatch)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", is_none)
    graph, stream, before = Graph(), SimpleNamespace(device=torch.device("cuda:0")), on.now
    known = weakref.ref(graph)
    with pytest.raises(torch.OutOfMemoryError):
        capture(graph, stream, no_room)  # type: ignore[arg-type]
    del graph
    assert on.now is before and on.calls == [] and known() is None


def test_torch_itself_still_leaves_a_capture_that_became_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, `cuda_graph_internals` may go."""
    on = OnDevice(monkeypatch)
    before = on.now
    with (
        pytest.raises(RuntimeError, match="due to a previous error"),
        torch.cuda.graph(InvalidGraph(), pool=(0, 5), stream=object(), capture_error_mode="thread_local"),  # type: ignore[arg-type]
    ):
        may_not()
    assert on.now is not before and on.calls == []


@pytest.mark.parametrize("repeat", [None, Again(), Failing(RuntimeError("not permitted"))])
def test_table_weights_and_moments_of_a_training_go_with_it_without_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, repeat: Again | None
) -> None:
    seen: list[weakref.ref[Any]] = []
    make, take = train.make_optimizer, ResidentRows.take

    def made(*given: Any) -> Any:
        optimizer = make(*given)
        momenta = (value for state in optimizer.state.values() for value in state.values())
        seen.extend(map(weakref.ref, (optimizer, *momenta)))
        return optimizer

    def taken(rows: ResidentRows, *given: Any) -> ResidentRows:
        batch = take(rows, *given)
        seen.extend(map(weakref.ref, (rows.numeric_NG, batch.numeric_NG)))
        return batch

    monkeypatch.setattr(train, "make_optimizer", made)
    monkeypatch.setattr(ResidentRows, "take", taken)
    gc.collect()
    gc.disable()
    try:
        # Two whole batches: what stands for a graph here would keep the loop, as no graph does.
        settings = {} if isinstance(repeat, Failing) else {"batch_size": 64, "epochs": 1}
        strategy, training = trained("tabm, Muon", graph=repeat, patience=1, **settings)
        seen.extend(map(weakref.ref, strategy.parameters()))
        del strategy
        assert training.best_weights and len(seen) > 20
        assert not [ref for ref in seen if ref() is not None]
    finally:
        gc.enable()


def test_each_reason_against_a_graph_is_given() -> None:
    def plan(budget: int) -> MemoryRecord:
        return MemoryRecord(
            budget_bytes=budget, beside_bytes=0, table_bytes=10, lasting_bytes=10, step_bytes=30,
            evaluation_bytes=20, micro_rows=8, eval_rows=8,
        )  # fmt: skip

    cuda = torch.device("cuda:0")
    single = alone()
    assert reason_against(single, parameters(), None) == "cpu has no CUDA graphs"
    single.device = cuda
    assert reason_against(single, parameters(), None) is None
    assert reason_against(single, parameters(), plan(80)) is None
    assert reason_against(single, parameters(), plan(79)) == (
        "the GPU's memory does not hold a captured step beside a plain one"
    )
    assert reason_against(single, parameters(cuda_graph=False), None) == "neural.cuda_graph is off"
    assert reason_against(single, parameters(compile=True), None) == "neural.compile brings graphs of its own"
    assert reason_against(single, parameters(architecture="realmlp"), None) == (
        "realmlp changes its dropout or weight decay from step to step"
    )
    single.name = "ddp"
    assert reason_against(single, parameters(), None) == (
        'only neural.strategy = "single" can be captured, not "ddp"'
    )


@pytest.mark.parametrize("task", ["binary", "regression"])
@pytest.mark.gpu
def test_a_captured_step_learns_on_a_gpu_what_plain_steps_learn(tmp_path: Path, task: str) -> None:
    table = plant(tmp_path, task, rows=4_000)
    for case in CAPTURED:
        name = case.replace(", ", "-").replace(" ", "-").lower()
        asked = {"dropout": 0.1, "precision": "float32", "epochs": 4, "batch_size": 128, **CASES[case]}
        plain = fit(*table, "cuda:0", name=f"{name}-plain", cuda_graph=False, **asked)
        found = fit(*table, "cuda:0", name=f"{name}-graph", **asked)
        assert plain.record.device_proof["steps"] == "operation by operation: neural.cuda_graph is off"
        assert found.record.device_proof["steps"] == "one CUDA graph each"
        for point, expected in zip(found.column("valid"), plain.column("valid"), strict=True):
            assert point == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
@pytest.mark.process
def test_the_benchmark_of_the_networks_runs_without_a_gpu() -> None:
    script = Path(__file__).parents[2] / "benchmarks/gpu/networks.py"
    options = ["--device", "cpu", "--rows", "3000", "--preset", "fast", "--networks", "mlp", "--runs", "1"]
    done = subprocess.run([sys.executable, str(script), *options], capture_output=True, text=True, check=True)
    lines = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines()]
    ways = {cells[2]: cells[3] for cells in lines if len(cells) > 3}
    assert ways["sparkgpu, CUDA graph"] == "– (cpu has no CUDA graphs)"
    for way in ("bare loop", "sparkgpu, plain steps", "DataLoader loop"):
        assert int(ways[way].replace(",", "")) > 0


def test_a_table_without_a_whole_batch_trains_plainly() -> None:
    repeat = Again()
    _, training = trained("mlp", graph=repeat, batch_size=ROWS + 1)
    assert repeat.warmed == repeat.replayed == 0 and len(training.curve) == 2
