"""The training loop under watch, without a GPU: what would wait for the device.

Tensors on torch's device `meta` have shapes and no memory: to read from them is an error, as nothing may be
read from a GPU while it computes. All code that asks whether it is on a CPU does there what it does on a GPU.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import parameters
from torch import Tensor
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sparkgpu.neural.nets.network import InputShape, build_net, find_network
from sparkgpu.neural.rows.resident import ResidentRows, ResidentSource
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.training.checkpoint import TrainingState
from sparkgpu.neural.training.fixed_step import CudaGraph, Work
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.precision import Precision
from sparkgpu.neural.training.train import Training

CPU, META = torch.device("cpu"), torch.device("meta")
BATCH = 32
ROWS = 4 * BATCH + 5
LEVELS = (2, 9, 40, 7, 50)
CASES: dict[str, dict[str, Any]] = {
    "tabm": {"architecture": "tabm", "hidden": (16, 16), "members": 4, "num_bins": 5, "embedding_dim": 3},
    "tabm, Muon": {
        "architecture": "tabm", "hidden": (16, 16, 16), "members": 4, "num_bins": 5, "embedding_dim": 3,
        "number_embedding": "cosine", "muon_learning_rate": 0.02,
    },
    "realmlp": {"architecture": "realmlp", "hidden": (16, 16)},
    "mlp": {"architecture": "mlp", "hidden": (16, 16)},
    "mlp, micro-batches": {"architecture": "mlp", "hidden": (16, 16), "micro_batch_size": 12},
    "resnet": {"architecture": "resnet", "hidden": (16, 16)},
    "modernnca": {"architecture": "modernnca", "hidden": (8, 16), "embedding_dim": 3},
}  # fmt: skip


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes file and line of ours of each copy to the device, which may wait for it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        found = {value.device for value in tree_leaves((args, kwargs, out)) if isinstance(value, Tensor)}
        if func.overloadpacket.__name__ in ("_to_copy", "copy_") and len(found) > 1:
            self.lines.append(_our_line())
        return out


def _our_line() -> str:
    """The innermost line of the package that led here."""
    for frame, line in traceback.walk_stack(None):
        if "/sparkgpu/neural/" in (file := frame.f_code.co_filename):
            return f"{Path(file).name}:{line}"
    return "outside"


class Unread(Strategy):
    """`single` on a device of which nothing can be read: sums are counted where they would be."""

    def __init__(self, place: RankPlace) -> None:
        super().__init__(place)
        self.reads = 0

    def sums_over_parts(self, values: Tensor) -> list[float]:
        self.reads += 1
        return [0.0] * len(values) if values.device == META else super().sums_over_parts(values)


class Again(CudaGraph):
    """Repeats a step by doing its work again, with the same Python values as at the capture."""

    needs_proof = False

    def __init__(self) -> None:
        self.warmed = self.replayed = 0

    def warm(self, work: Work) -> None:
        self.warmed += 1
        work()

    def capture(self, work: Work) -> None:
        self._work = work

    def replay(self) -> None:
        self.replayed += 1
        self._work()

    def drop(self) -> None:
        self._work = lambda: None


@contextmanager
def meta_training() -> Iterator[None]:
    """Lets torch's fused optimizer and its generators take `meta` for a GPU."""

    class AnyGenerator(torch.Generator):
        def __new__(cls, device: Any = None) -> AnyGenerator:
            return super().__new__(cls)

    devices = ["meta", "cpu", "cuda"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "Generator", AnyGenerator)
        adam = sys.modules["torch.optim.adam"]  # torch.optim hides it
        patch.setattr(adam, "_device_dtype_check_for_fused", lambda *_, **__: None)
        patch.setattr(_foreach_utils, "_get_foreach_kernels_supported_devices", lambda: devices)
        # torch has it for a learning rate that is a number, not for one on the device.
        library = torch.library.Library("aten", "IMPL", "Meta")
        library.impl("_fused_adamw_.tensor_lr", lambda *_, **__: None)
        yield


def trained(
    case: str,
    device: torch.device = CPU,
    *,
    graph: CudaGraph | None = None,
    task: str = "binary",
    weighted: bool = False,
    precision: torch.dtype | None = None,
    on_step: Callable[[], None] = lambda: None,
    **settings: Any,
) -> tuple[Unread, TrainingState]:
    """The real training loop on a small table."""
    asked = {
        "batch_size": BATCH,
        "epochs": 2,
        "dropout": 0.2,
        "schedule": "cosine",
        **CASES[case],
        **settings,
    }
    config = parameters(**asked)
    random = torch.Generator().manual_seed(0)
    codes = [torch.randint(-1, n, (ROWS,), generator=random, dtype=torch.int32) for n in LEVELS]
    target = torch.randn(ROWS, generator=random)
    network = find_network(config)
    rows = ResidentRows(
        numeric_NG=torch.randn((ROWS, 4), generator=random),
        codes_NK=torch.stack(codes, 1),
        target_N=target if task == "regression" else (target > 0).long(),
        weight_N=torch.rand(ROWS, generator=random) if weighted else None,
        row_id_N=torch.arange(ROWS) if network.looks_up else None,
    )
    edges = (*(torch.linspace(-2.0, 2.0, config.num_bins + 1) for _ in range(3)), torch.tensor([0.0, 1.0]))
    shape = InputShape(
        num_numeric=4,
        num_levels=LEVELS,
        num_outputs=1 if task == "regression" else 2,
        bins=edges if network.bins else (),
    )
    torch.manual_seed(0)
    strategy = Unread(RankPlace(device=device, precision=Precision(device_type="cpu", dtype=precision)))
    net = build_net(config, shape)
    if network.looks_up and network.start is not None:
        network.start(net, rows)
    strategy.spread(net, Objective(task=task))  # type: ignore[arg-type]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a second gains nothing here, and costs much time where the cores are busy
    try:
        training = Training(
            strategy=strategy,
            source=ResidentSource(rows=rows.to(device)),
            valid_rows=rows.to(device),
            config=config,
            recipe=network.recipe,
            seed=7,
            report=lambda done, epoch, value: on_step(),
            graph=graph,
        ).run()
    finally:
        torch.set_num_threads(threads)
    return strategy, training
