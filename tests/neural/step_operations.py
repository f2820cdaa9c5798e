"""What one training step starts on a device: the operations of each network with its presets for a GPU.

    python tests/neural/step_operations.py            # a table; no GPU is needed

Counted on torch's device `meta`, over one whole batch of adult's columns, the gathering of the batch
included: each operation that starts at least one kernel. Views, and memory that is only taken, start none.
Some start several, on a GPU as well, so the numbers are the least. With a captured step only what stands
around it is started by itself, and the graph counts as one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from watched_steps import META, Again, Unread, meta_training

from sparkgpu.core.config import toml
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.config.values import Preset
from sparkgpu.core.plan.defaults import resolve
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.neural.nets.network import InputShape, build_net, find_network
from sparkgpu.neural.rows.resident import ResidentRows, ResidentSource
from sparkgpu.neural.strategies.base import RankPlace
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.precision import Precision
from sparkgpu.neural.training.train import Training

ADULT = (9, 16, 7, 15, 6, 5, 2, 42)  # levels; and six numbers
NUM_NUMERIC = 6
_FREE = ("empty", "empty_like", "empty_strided", "new_empty", "detach", "alias", "_unsafe_view", "lift_fresh")


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that start a kernel, in `number`; nothing while `is_off`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.number = 0
        self.is_off = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        self.number += not (self.is_off or is_view or name in _FREE or func.namespace == "profiler")
        return func(*args, **(kwargs or {}))


class Graph(Again):
    """Counts as one what it repeats."""

    def __init__(self, operations: Operations) -> None:
        super().__init__()
        self._operations = operations

    def replay(self) -> None:
        self._operations.is_off = True
        super().replay()
        self._operations.is_off = False
        self._operations.number += 1


def gpu_parameters(architecture: str, *, preset: Preset = "balanced", **settings: Any) -> NeuralParameters:
    """As a run on a GPU resolves them for a table of adult's size."""
    size = TableSize(task="binary", train_rows=26_048, num_features=14, num_classes=2)
    options = {"neural.architecture": architecture, **{f"neural.{key}": v for key, v in settings.items()}}
    return resolve(
        toml.load(options=options), preset=preset, strategy="single", size=size, device="cuda:0",
        tree_device=lambda engine: "cuda:0",
    ).neural  # fmt: skip


def operations(config: NeuralParameters, *, captured: bool) -> int:
    """The operations that the host starts for the eighth step of a training."""
    config = config.model_copy(update={"epochs": 1, "patience": 0})
    number = 10 * config.batch_size
    network = find_network(config)
    shape = InputShape(
        num_numeric=NUM_NUMERIC,
        num_levels=ADULT,
        num_outputs=2,
        bins=(torch.linspace(-2.0, 2.0, config.num_bins + 1),) * NUM_NUMERIC if network.bins else (),
    )
    rows = ResidentRows(
        numeric_NG=torch.zeros(number, NUM_NUMERIC, device=META),
        codes_NK=torch.zeros(number, len(ADULT), dtype=torch.int32, device=META),
        target_N=torch.zeros(number, dtype=torch.int64, device=META),
        weight_N=None,
    )
    strategy = Unread(RankPlace(device=META, precision=Precision(device_type="cpu", dtype=torch.bfloat16)))
    strategy.spread(build_net(config, shape), Objective(task="binary"))
    marks: list[int] = []
    with meta_training(), Operations() as found:
        asked: dict[str, Any] = {"graph": Graph(found)} if captured else {}
        Training(
            strategy=strategy, source=ResidentSource(rows=rows), valid_rows=rows.part(slice(0, 8)),
            config=config, recipe=network.recipe, seed=1,
            report=lambda done, epoch, value: marks.append(found.number), **asked,
        ).run()  # fmt: skip
    return marks[7] - marks[6]


CASES: dict[str, NeuralParameters] = {
    "tabm": gpu_parameters("tabm"),
    "tabm, Muon": gpu_parameters("tabm", muon_learning_rate=0.02),
    "tabm, Muon, three layers": gpu_parameters("tabm", muon_learning_rate=0.02, hidden=[512, 512, 512]),
    "realmlp": gpu_parameters("realmlp"),
    "mlp": gpu_parameters("mlp"),
    "resnet": gpu_parameters("resnet"),
}


def main() -> None:
    print("| network, preset `balanced` | layers | plain | captured |\n|---|---|---:|---:|")
    for name, config in CASES.items():
        captured = operations(config, captured=True)
        layers = "-".join(map(str, config.hidden))
        print(f"| {name} | {layers} | {operations(config, captured=False)} | {captured} |")


if __name__ == "__main__":
    main()
