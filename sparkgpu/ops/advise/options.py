"""The ways to carry out a run, each with its standing here and the reason: pure rules.

How a network is spread was decided by the plan (`sparkgpu.core.plan.devices`), as it will be by the run;
nothing here decides it anew. The speed-up of one network over several devices is that of
`sparkgpu.ops.advise.scaling` with a step that divides fully, so it is the most that can be had.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.host.devices import Device, Machine
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.advice import OptionRecord
from sparkgpu.core.words import gibibytes
from sparkgpu.ops.advise.place import Place
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
        self._device_bytes = min((one.memory_bytes for one in devices if one.memory_bytes), default=0)
        as_lanes = plan.strategy == "single" and self._lanes > 1
        self._chosen = "lanes" if as_lanes else plan.strategy
        self._step = Step(
            fixed_s=0.0, row_s=predicted.epoch_s / max(1, found.size.train_rows),
            batch=found.resolved.neural.batch_size, weight_bytes=4 * found.parameters,
            link=GPU_LINK if self._on_gpu else CPU_LINK, shared_cores=not self._on_gpu,
        )  # fmt: skip

    def options(self, place: Place) -> tuple[OptionRecord, ...]:
        """Every way with its standing: those of one network, then those of the place."""
        network = ("single", "lanes", "dp", "ddp", "fsdp", "tp", "pp")
        return (*map(self._of_network, network), self._cluster(place), *place.options())

    def _of_network(self, name: str) -> OptionRecord:
        run, is_chosen = self._predicted, self._chosen == name
        devices = self._lanes if is_chosen else self._devices
        if name == "single":
            devices = 1
        elif devices < 2:
            why = "there is one device" if name == "lanes" else "it needs two devices; this run has one"
            return OptionRecord(name=name, standing="not here", why=why)
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
        needed = f"{bytes_ / 2**20:,.0f} MiB"
        if name == "single" and self._chosen == "lanes":
            return "the same with one lane"
        if name in ("tp", "pp", "fsdp"):
            needs = self._on_gpu and bytes_ > self._device_bytes / 2
            if STRATEGIES.find(name).cuts is not None:
                rest = "" if needs else ", which this one is not"
                return f"it cuts the network itself: for networks that no device holds{rest}"
            if needs:
                return "the network does not fit one device beside the rows"
            return f"it cuts {needed} of weights and moments, which one device holds easily"
        what = f"the network's {self._parameters:,} weights and their training take {needed}"
        if self._on_gpu:
            return {
                "single": f"{what} of a GPU's {gibibytes(self._device_bytes)}; nothing has to be cut",
                "lanes": f"{devices} networks and trees with seeds of their own: no communication, and a "
                "spread",
                "dp": "one process copies the network for each step; ddp does the same with less copying",
                "ddp": f"one network in less time: {4 * self._parameters / 1e6:.1f} MB are summed in each "
                "step",
            }[name]
        return {
            "single": f"{what}, and all cores work on one network while no other one trains",
            "lanes": f"{devices} seeds and a spread, but they share the same cores: no more work an hour",
            "dp": "it copies to GPUs only; on the CPU it trains as single does",
            "ddp": f"{devices} lanes share the same cores, so it only adds communication",
        }[name]

    def _cluster(self, place: Place) -> OptionRecord:
        needed = self._predicted.peak_rss_bytes
        memory = f"{gibibytes(needed)} of {gibibytes(self._memory_bytes)} memory"
        if place.kind == "spark":
            why = f"{place.found}; the times here are of this machine, not of its executors"
            return OptionRecord(name="cluster", standing="chosen", why=why)
        if needed <= _USABLE * self._memory_bytes:
            why = f"the run takes about {memory} here, so one machine is enough"
            return OptionRecord(name="cluster", standing="not here", why=why)
        why = f"the run takes about {memory}: name a Spark master with cluster.master"
        return OptionRecord(name="cluster", standing="possible", why=why)
