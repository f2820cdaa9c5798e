"""The strategies with which one network uses several devices, with one entry each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sparkgpu.core.config.registry.entries import Entry, Registry


@dataclass(frozen=True, kw_only=True)
class StrategyEntry(Entry):
    """A strategy; `load` names its class (`sparkgpu.neural.strategies.base.Strategy`).

    `devices` is ``one``, ``threads`` (several devices in one process) or ``ranks`` (a process for each).
    `cuts` tells how one copy of the network is cut: inside ``layers`` (tensor parallel), between ``blocks``
    (pipeline), or not. A `hybrid` has several such copies, each with different rows. `compiles` tells whether
    torch.compile works with it, `scales_losses` whether float16 does: every rank must hold the whole gradient
    to see an overflow.
    """

    devices: Literal["one", "threads", "ranks"] = "ranks"
    cuts: Literal["layers", "blocks"] | None = None
    hybrid: bool = False
    compiles: bool = False
    scales_losses: bool = False

    @property
    def is_gang(self) -> bool:
        return self.devices != "one"


_PACKAGE = "sparkgpu.neural.strategies"

STRATEGIES: Registry[StrategyEntry] = Registry(
    "sparkgpu.strategies",
    StrategyEntry,
    (
        StrategyEntry(
            name="single",
            load=f"{_PACKAGE}.base:Strategy",
            devices="one",
            compiles=True,
            scales_losses=True,
        ),
        StrategyEntry(
            name="dp", load=f"{_PACKAGE}.data_parallel:DataParallel", devices="threads", scales_losses=True
        ),
        StrategyEntry(
            name="ddp",
            load=f"{_PACKAGE}.data_parallel:DistributedDataParallel",
            compiles=True,
            scales_losses=True,
        ),
        StrategyEntry(name="fsdp", load=f"{_PACKAGE}.sharded:FullyShardedDataParallel"),
        StrategyEntry(name="tp", load=f"{_PACKAGE}.sharded:TensorParallel", cuts="layers"),
        StrategyEntry(name="pp", load=f"{_PACKAGE}.pipeline:PipelineParallel", cuts="blocks"),
        StrategyEntry(name="dp_tp", load=f"{_PACKAGE}.sharded:TensorParallel", cuts="layers", hybrid=True),
        StrategyEntry(name="dp_pp", load=f"{_PACKAGE}.pipeline:PipelineParallel", cuts="blocks", hybrid=True),
    ),
)
