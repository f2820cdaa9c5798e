"""The ways to carry out a run, each with its standing here and the reason: pure rules.

How a network is spread was decided by the plan (`sparkgpu.plan.strategy`), as it will be by the run; nothing
here decides it anew. The speed-up of one network over several devices is that of `sparkgpu.advise.scaling`
with a step that divides fully, so it is the most that can be had.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkgpu.advise.place import Place
from sparkgpu.advise.predict import Prediction
from sparkgpu.advise.scaling import MODELLED, Link, Step
from sparkgpu.config.registry.strategies import STRATEGIES
from sparkgpu.plan.plan import Plan
from sparkgpu.rundir.advice import OptionRecord, Standing
from sparkgpu.words import gibibytes

GPU_LINK = Link(bytes_per_s=1e10, latency_s=2e-5, origin="assumed: PCIe 4 in one machine")
CPU_LINK = Link(bytes_per_s=5e8, latency_s=2e-4, origin="measured with gloo on two cores (docs/choose.md)")
_ADAM_BYTES = 16  # for one float32 weight: itself, its gradient and two moments
_USABLE = 0.8


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the rules look at besides the plan.

    `parameters` are the network's weights, `batch` and `train_rows` those of its training. `device_bytes` is
    the memory of the smallest GPU (None on the CPU), `memory_bytes` that of the machine. `devices` could be
    used in all.
    """

    parameters: int
    batch: int
    train_rows: int
    devices: int
    memory_bytes: int
    device_bytes: int | None
    price_per_hour: float | None

    @property
    def on_gpu(self) -> bool:
        return self.device_bytes is not None

    def price(self, wall_s: float | None, devices: int) -> float | None:
        if wall_s is None or self.price_per_hour is None:
            return None
        return wall_s / 3600 * devices * self.price_per_hour


def options(found: Prediction, plan: Plan, place: Place, facts: Facts) -> tuple[OptionRecord, ...]:
    """Every way with its standing: those of one network, then those of the place."""
    chosen = "lanes" if plan.strategy == "single" and len(plan.lanes) > 1 else plan.strategy
    spread = [_spread(name, found, plan, facts, chosen) for name in ("dp", "ddp", "fsdp", "tp", "pp")]
    return (
        _single(found, plan, facts, chosen),
        _lanes(found, plan, facts, chosen),
        *spread,
        _cluster(found, place, facts),
        _slurm(place),
        _notebook(place),
    )


def _single(found: Prediction, plan: Plan, facts: Facts, chosen: str) -> OptionRecord:
    why = f"the network's {facts.parameters:,} weights and their training take {_weights(facts)}"
    if facts.device_bytes is not None:
        why += f" of a GPU's {gibibytes(facts.device_bytes)}; nothing has to be cut"
    else:
        why += ", and all cores work on one network while no other one trains"
    return OptionRecord(
        name="single",
        standing="chosen" if chosen == "single" else "possible",
        why="the same with one lane" if chosen == "lanes" else why,
        devices=1,
        wall_s=found.wall_s if chosen == "single" else None,
        efficiency=1.0,
        price=facts.price(found.wall_s, 1) if len(plan.lanes) == 1 else None,
    )


def _lanes(found: Prediction, plan: Plan, facts: Facts, chosen: str) -> OptionRecord:
    devices = max(len(plan.lanes), facts.devices)
    if devices < 2:
        return OptionRecord(name="lanes", standing="not here", why="there is one device")
    wall_s = found.wall_s if chosen == "lanes" else None
    why = (
        f"{devices} networks and trees with seeds of their own: no communication, and a spread"
        if facts.on_gpu
        else f"{devices} seeds and a spread, but they share the same cores: no more work an hour"
    )
    return OptionRecord(
        name="lanes", standing="chosen" if chosen == "lanes" else "possible", why=why, devices=devices,
        wall_s=wall_s, efficiency=1.0 if facts.on_gpu else 1 / devices,
        price=facts.price(wall_s, len(plan.lanes)),
    )  # fmt: skip


def _spread(name: str, found: Prediction, plan: Plan, facts: Facts, chosen: str) -> OptionRecord:
    """One network over several devices."""
    devices = max(len(plan.lanes), facts.devices)
    if devices < 2:
        return OptionRecord(name=name, standing="not here", why="it needs two devices; this run has one")
    times, wall_s = None, found.wall_s if chosen == name else None
    if name in MODELLED and found.epoch_s > 0:
        step = Step(
            fixed_s=0.0, row_s=found.epoch_s / max(1, facts.train_rows), batch=facts.batch,
            weight_bytes=4 * facts.parameters, link=GPU_LINK if facts.on_gpu else CPU_LINK,
            shared_cores=not facts.on_gpu,
        )  # fmt: skip
        times = step.speed_up(name, devices)
        if chosen != name and "neural" in found.branches_s:
            network_s = (found.branches_s["neural"] - found.ready_s) / times
            wall_s = max(found.branches_s.get("trees", 0.0), found.ready_s + network_s) + found.end_s
    return OptionRecord(
        name=name,
        standing="chosen" if chosen == name else "possible",
        why=_why_spread(name, facts, devices),
        devices=devices,
        wall_s=wall_s,
        efficiency=None if times is None else times / devices,
        price=facts.price(wall_s, devices),
    )


def _why_spread(name: str, facts: Facts, devices: int) -> str:
    if name == "dp":
        return (
            "one process copies the network for each step; ddp does the same with less copying"
            if facts.on_gpu
            else "it copies to GPUs only; on the CPU it trains as single does"
        )
    if name == "ddp":
        if not facts.on_gpu:
            return f"{devices} lanes share the same cores, so it only adds communication"
        return f"one network in less time: {4 * facts.parameters / 1e6:.1f} MB are summed in each step"
    needs = facts.device_bytes is not None and facts.parameters * _ADAM_BYTES > facts.device_bytes / 2
    if STRATEGIES.find(name).cuts is None:
        return (
            "the network does not fit one device beside the rows"
            if needs
            else f"it cuts {_weights(facts)} of weights and moments, which one device holds easily"
        )
    rest = "" if needs else ", which this one is not"
    return f"it cuts the network itself: for networks that no device holds{rest}"


def _weights(facts: Facts) -> str:
    return f"{facts.parameters * _ADAM_BYTES / 2**20:,.0f} MiB"


def _cluster(found: Prediction, place: Place, facts: Facts) -> OptionRecord:
    memory = f"{gibibytes(found.peak_rss_bytes)} of {gibibytes(facts.memory_bytes)} memory"
    standing: Standing = "possible"
    why = f"the run takes about {memory}: name a Spark master with cluster.master"
    if place.kind == "spark":
        standing = "chosen"
        why = f"{place.found}; the times here are of this machine, not of its executors"
    elif found.peak_rss_bytes <= _USABLE * facts.memory_bytes:
        standing, why = "not here", f"the run takes about {memory} here, so one machine is enough"
    return OptionRecord(name="cluster", standing=standing, why=why)


def _slurm(place: Place) -> OptionRecord:
    if place.kind == "slurm job":
        return OptionRecord(name="Slurm", standing="chosen", why=place.found)
    if place.kind == "slurm queue":
        why = "`sparkgpu slurm write` makes scripts for its queue"
        return OptionRecord(name="Slurm", standing="possible", why=why)
    return OptionRecord(name="Slurm", standing="not here", why="no Slurm was found (no job, no sbatch)")


def _notebook(place: Place) -> OptionRecord:
    if place.kind == "notebook":
        why = f"{place.found}: sparkgpu.run starts processes of its own, with ddp as well"
        return OptionRecord(name="notebook", standing="chosen", why=why)
    why = "sparkgpu.run does the same in scripts and notebooks"
    return OptionRecord(name="notebook", standing="not here", why=why)
