"""The ways to spread a network over devices, each with its standing here and the reason: pure rules.

The plan decided the way (`sparkgpu.core.plan.devices`), as it will for the run; nothing here decides it anew.
The speed-up of one network over several devices is that of `sparkgpu.ops.advise.scaling` with a step that
divides fully, so it is the most that can be had.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkgpu.core.host.devices import Device, Machine
from sparkgpu.core.plan.devices import ONE_SLICE
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.advice import OptionRecord
from sparkgpu.core.words import gibibytes
from sparkgpu.ops.advise.predict import Prediction
from sparkgpu.ops.advise.scaling import MODELLED, Link, Step
from sparkgpu.ops.advise.speed import MachineSpeed

GPU_LINK = Link(bytes_per_s=1e10, latency_s=2e-5, origin="assumed: PCIe 4 in one machine")
CPU_LINK = Link(bytes_per_s=5e8, latency_s=2e-4, origin="measured with gloo on two cores (docs/choose.md)")
_ADAM_BYTES = 16  # for one float32 weight: itself, its gradient and two moments
_USABLE = 0.8


class Ways:
    """What the rules look at: the small run, what follows from it, the plan, and what there is."""

    def __init__(
        self,
        found: MachineSpeed,
        predicted: Prediction,
        plan: Plan,
        machine: Machine,
        devices: Sequence[Device],
        price_per_hour: float | None,
    ) -> None:
        self._predicted, self._parameters = predicted, found.parameters
        self._memory_bytes, self._price_per_hour = machine.memory_bytes, price_per_hour
        self._on_gpu = devices[0].kind == "cuda"
        self._lanes = len(plan.lanes)
        self._devices = max(self._lanes, len(machine.gpus) if self._on_gpu else machine.cores)
        self._slices = any(one.is_slice for one in devices)
        self._device_bytes = min((one.free_bytes for one in devices if one.free_bytes), default=0)
        as_lanes = plan.strategy == "single" and self._lanes > 1
        self._chosen = "lanes" if as_lanes else plan.strategy
        self._step = Step(
            fixed_s=0.0, row_s=predicted.epoch_s / max(1, found.size.train_rows),
            batch=found.resolved.neural.batch_size, weight_bytes=4 * found.parameters,
            link=GPU_LINK if self._on_gpu else CPU_LINK, shared_cores=not self._on_gpu,
        )  # fmt: skip

    def options(self) -> tuple[OptionRecord, ...]:
        """Every way with its standing: those of one machine, then the cluster."""
        names = ("single", "lanes", "dp", "ddp", "fsdp", "tp", "pp")
        return (*map(self._of_network, names), self._cluster())

    def _of_network(self, name: str) -> OptionRecord:
        run, is_chosen = self._predicted, self._chosen == name
        devices = 1 if name == "single" else self._lanes if is_chosen else self._devices
        if name != "single" and devices < 2:
            return OptionRecord(name=name, standing="not here", why="it needs two devices; this run has one")
        if self._slices and name not in ("single", "lanes"):
            return OptionRecord(name=name, standing="not here", why=ONE_SLICE)
        times, wall_s = 1.0 if name == "single" else None, run.wall_s if is_chosen else None
        if name == "lanes" or (name in MODELLED and run.epoch_s > 0):
            times = self._step.speed_up(name, devices)
            if not is_chosen and name != "lanes":
                network_s = (run.branches_s["neural"] - run.ready_s) / times
                wall_s = max(run.branches_s.get("trees", 0.0), run.ready_s + network_s) + run.end_s
        price = self._price_per_hour
        return OptionRecord(
            name=name,
            standing="chosen" if is_chosen else "possible",
            why=self._why(name, devices),
            devices=devices,
            wall_s=wall_s,
            efficiency=None if times is None else times / devices,
            price=None if wall_s is None or price is None else wall_s / 3600 * devices * price,
        )

    def _why(self, name: str, devices: int) -> str:
        bytes_ = _ADAM_BYTES * self._parameters
        needed = f"{bytes_ / 2**20:,.0f} MiB of weights and moments"
        if name in ("tp", "pp", "fsdp"):
            is_large = self._on_gpu and bytes_ > self._device_bytes / 2
            held = "do not fit one device beside the rows" if is_large else "one device holds easily"
            return f"it cuts the network's {needed}, which {held}"
        if self._on_gpu:
            return {
                "single": f"the network has {needed}: nothing has to be cut",
                "lanes": f"{devices} seeds and a spread, without communication",
                "dp": "one process copies the network for each step; ddp does the same with less copying",
                "ddp": f"one network sooner: {4 * self._parameters / 1e6:.1f} MB are summed in each step",
            }[name]
        return {
            "single": "all cores work on one network while no other one trains",
            "lanes": f"{devices} seeds and a spread, but they share the same cores: no more work an hour",
            "dp": "it copies to GPUs only; on the CPU it trains as single does",
            "ddp": f"{devices} lanes share the same cores, so it only adds communication",
        }[name]

    def _cluster(self) -> OptionRecord:
        needed = self._predicted.peak_rss_bytes
        memory = f"the run takes about {gibibytes(needed)} of {gibibytes(self._memory_bytes)} memory"
        if needed <= _USABLE * self._memory_bytes:
            return OptionRecord(name="cluster", standing="not here", why=f"{memory}: one machine is enough")
        why = f"{memory}: name a Spark master with cluster.master"
        return OptionRecord(name="cluster", standing="possible", why=why)
