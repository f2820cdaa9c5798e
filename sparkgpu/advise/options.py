"""The ways to carry out a run, each with its standing here and the reason: pure rules.

How a network is spread was decided by the plan (`sparkgpu.plan.strategy`), as it will be by the run; nothing
here decides it anew. The speed-up of one network over several devices is that of `sparkgpu.advise.scaling`
with a step that divides fully, so it is the most that can be had.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkgpu.advise.place import Place
from sparkgpu.advise.predict import Prediction
from sparkgpu.advise.scaling import Link, Modelled, StepCost, speed_up
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
    used in all, `cores` are the machine's.
    """

    parameters: int
    batch: int
    train_rows: int
    devices: int
    cores: int
    memory_bytes: int
    device_bytes: int | None
    price_per_hour: float | None


def options(found: Prediction, plan: Plan, place: Place, facts: Facts) -> tuple[OptionRecord, ...]:
    """Every way with its standing: those of one network, then those of the place."""
    return (*_of_network(found, plan, facts), *_of_place(found, plan, place, facts))


def _of_network(found: Prediction, plan: Plan, facts: Facts) -> list[OptionRecord]:
    on_gpu, lanes, chosen = facts.device_bytes is not None, len(plan.lanes), plan.strategy
    several = max(lanes, facts.devices)
    as_lanes = chosen == "single" and lanes > 1
    rows = [
        OptionRecord(
            name="single",
            standing="chosen" if chosen == "single" and lanes == 1 else "possible",
            why=_why_single(plan, facts, found) if not as_lanes else "the same with one lane",
            devices=1,
            wall_s=found.wall_s if chosen == "single" and lanes == 1 else None,
            efficiency=1.0,
            price=_price(found.wall_s, 1, facts) if lanes == 1 else None,
        ),
        OptionRecord(
            name="lanes",
            standing="chosen" if as_lanes else "possible" if several > 1 else "not here",
            why=_why_lanes(several, on_gpu=on_gpu),
            devices=several if several > 1 else None,
            wall_s=found.wall_s if as_lanes else None,
            efficiency=(1.0 if on_gpu else 1 / several) if several > 1 else None,
            price=_price(found.wall_s, lanes, facts) if as_lanes else None,
        ),
    ]
    for name in ("dp", "ddp", "fsdp", "tp", "pp"):
        rows.append(_spread(name, found, plan, facts, several))
    return rows


def _spread(name: str, found: Prediction, plan: Plan, facts: Facts, devices: int) -> OptionRecord:
    """One network over several devices."""
    chosen, on_gpu = plan.strategy == name, facts.device_bytes is not None
    if devices < 2:
        return OptionRecord(name=name, standing="not here", why="it needs two devices; this run has one")
    times: float | None = None
    if name in ("dp", "ddp", "fsdp") and found.epoch_s > 0:
        kind: Modelled = "dp" if name == "dp" else "ddp" if name == "ddp" else "fsdp"
        row_s = found.epoch_s / max(1, facts.train_rows)
        times = speed_up(
            kind, StepCost(fixed_s=0.0, row_s=row_s), batch=facts.batch, weight_bytes=4 * facts.parameters,
            devices=devices, link=GPU_LINK if on_gpu else CPU_LINK, shared_cores=not on_gpu,
        )  # fmt: skip
    wall_s = None
    if chosen:
        wall_s = found.wall_s
    elif times is not None and "neural" in found.branches_s:
        network_s = (found.branches_s["neural"] - found.ready_s) / times
        trees_s = found.branches_s.get("trees", 0.0)
        wall_s = max(trees_s, found.ready_s + network_s) + found.end_s
    return OptionRecord(
        name=name,
        standing="chosen" if chosen else "possible",
        why=_why_spread(name, facts, devices, on_gpu=on_gpu),
        devices=devices,
        wall_s=wall_s,
        efficiency=None if times is None else times / devices,
        price=None if wall_s is None else _price(wall_s, devices, facts),
    )


def _why_single(plan: Plan, facts: Facts, found: Prediction) -> str:
    weights = facts.parameters * _ADAM_BYTES
    what = f"the network's {facts.parameters:,} weights and their training take {weights / 2**20:,.0f} MiB"
    if facts.device_bytes is not None:
        return f"{what} of a GPU's {gibibytes(facts.device_bytes)}; nothing has to be cut"
    return f"{what}, and all cores work on one network while no other one trains"


def _why_lanes(devices: int, *, on_gpu: bool) -> str:
    if devices < 2:
        return "there is one device"
    if on_gpu:
        return f"{devices} networks and trees with seeds of their own: no communication, and a spread"
    return f"{devices} seeds and a spread, but they share the same cores: no more work an hour"


def _why_spread(name: str, facts: Facts, devices: int, *, on_gpu: bool) -> str:
    weights = facts.parameters * _ADAM_BYTES
    if name == "dp":
        return (
            "one process copies the network for each step; ddp does the same with less copying"
            if on_gpu
            else "it copies to GPUs only; on the CPU it trains as single does"
        )
    if name == "ddp":
        if not on_gpu:
            return f"{devices} lanes share the same cores, so it only adds communication"
        return f"one network in less time: {4 * facts.parameters / 1e6:.1f} MB are summed in each step"
    needs = facts.device_bytes is not None and weights > facts.device_bytes / 2
    if STRATEGIES.find(name).cuts is None:
        return (
            "the network does not fit one device beside the rows"
            if needs
            else f"it cuts {weights / 2**20:,.0f} MiB of weights and moments, which one device holds easily"
        )
    return "it cuts the network itself: for networks that no device holds" + (
        "" if needs else ", which this one is not"
    )


def _of_place(found: Prediction, plan: Plan, place: Place, facts: Facts) -> list[OptionRecord]:
    fits = found.peak_rss_bytes <= _USABLE * facts.memory_bytes
    memory = f"{gibibytes(found.peak_rss_bytes)} of {gibibytes(facts.memory_bytes)} memory"
    cluster: tuple[Standing, str]
    if place.kind == "spark":
        cluster = "chosen", f"{place.found}; the times here are of this machine, not of its executors"
    elif fits:
        cluster = "not here", f"the run takes about {memory} here, so one machine is enough"
    else:
        cluster = "possible", f"the run takes about {memory}: name a Spark master with cluster.master"
    slurm: tuple[Standing, str] = "not here", "no Slurm was found (no job, no sbatch)"
    if place.kind == "slurm job":
        slurm = "chosen", place.found
    elif place.kind == "slurm queue":
        slurm = "possible", "`sparkgpu slurm write` makes scripts for its queue"
    notebook: tuple[Standing, str] = (
        "not here",
        "sparkgpu.run does the same in scripts and notebooks",
    )
    if place.kind == "notebook":
        notebook = "chosen", f"{place.found}: sparkgpu.run starts processes of its own, with ddp as well"
    return [
        OptionRecord(name=name, standing=standing, why=why)
        for name, (standing, why) in (("cluster", cluster), ("Slurm", slurm), ("notebook", notebook))
    ]


def _price(wall_s: float, devices: int, facts: Facts) -> float | None:
    return None if facts.price_per_hour is None else wall_s / 3600 * devices * facts.price_per_hour
