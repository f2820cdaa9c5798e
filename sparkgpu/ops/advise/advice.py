"""The advice from the question to its record: plan, small run, prediction, ways, and the command to copy."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.devices import choose_devices, find_machine
from sparkgpu.core.host.reservations import scratch_folder
from sparkgpu.core.plan.plan import Plan, make_plan
from sparkgpu.core.rundir.advice import AdviceRecord
from sparkgpu.core.table.demo import DEMO, DEMO_SOURCE, with_demo_target
from sparkgpu.core.table.demo_table import resolve_demo
from sparkgpu.core.table.source import Source, find_source
from sparkgpu.core.words import counted, seconds_text
from sparkgpu.ops.advise.options import Ways
from sparkgpu.ops.advise.place import Place, find_place
from sparkgpu.ops.advise.predict import Prediction, predict
from sparkgpu.ops.advise.speed import MachineSpeed, measure_speed
from sparkgpu.runs.provenance import check_engines, engine_with_cuda


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The record, and the plan that it speaks about."""

    record: AdviceRecord
    plan: Plan


def advise(
    config: RunConfig,
    words: Sequence[str],
    tell: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> Advice:
    """Measure this machine with a part of the table, and predict the run of `config`.

    `words` are the source and the options of the command line, for the command to copy. Raises what a run
    raises, before anything starts where it can be known.
    """
    began = time.time()
    if config.search is not None:
        raise ConfigError("search: how long it takes depends on what it tries. Leave it out of the advice.")
    check_engines(config)
    source, config = source_of(config)
    machine = find_machine()
    devices = choose_devices(
        machine, gpus=config.devices.gpus, cpu_lanes=config.devices.cpu_lanes, environ=environ
    )
    has_queue = shutil.which("sbatch") is not None
    place = find_place(environ, sys.modules, master=config.cluster.master, has_queue=has_queue)
    on_gpu = devices[0].kind == "cuda"
    plan = make_plan(  # as the run will make it, but that no port is taken for it
        config, machine, devices, tuple(range(len(devices))),
        cuda_engine=engine_with_cuda() if on_gpu else None, started=began,
    )  # fmt: skip
    tell("a small run on some of the rows: about 20 s on a quiet machine, more on a busy one")
    with scratch_folder() as folder:
        here = resolve_demo(source, folder)
        found = measure_speed(config, here.model_copy(update={"name": source.name}), plan, folder)
    predicted = predict(found, plan)
    price = config.cost.price_per_hour
    hours = predicted.wall_s / 3600 * len(plan.lanes)
    record = AdviceRecord(
        source=source.name,
        rows=found.sample.whole_rows,
        num_features=found.size.num_features,
        task=found.size.task,
        place=place.found,
        device=devices[0].title,
        lanes=len(plan.lanes),
        strategy=plan.strategy,
        wall_s=predicted.wall_s,
        ready_s=predicted.ready_s,
        trees_s=predicted.branches_s.get("trees"),
        neural_s=predicted.branches_s.get("neural"),
        peak_rss_bytes=predicted.peak_rss_bytes,
        peak_device_bytes=predicted.peak_device_bytes,
        device_hours=hours,
        price=None if price is None else price * hours,
        calibration_s=time.time() - began,
        assumptions=_assumptions(found, predicted, plan),
        options=Ways(found, predicted, plan, machine, devices, price).options(place),
        command=command(words, place),
    )
    return Advice(record=record, plan=plan)


def source_of(config: RunConfig) -> tuple[Source, RunConfig]:
    """The source that `config` names, and the configuration with the target of the demo if that is it."""
    text = config.data.source
    if text is not None and text != DEMO:
        return find_source(text), config
    return DEMO_SOURCE, with_demo_target(config)


def _assumptions(found: MachineSpeed, predicted: Prediction, plan: Plan) -> tuple[str, ...]:
    sample, resolved = found.sample, found.resolved
    lines = [
        f"measured by a run on {sample.rows:,} of {'' if sample.is_exact else 'about '}"
        f"{sample.whole_rows:,} rows with {found.rounds} rounds and {found.epochs} epochs, "
        f"in {seconds_text(found.wall_s)}",
    ]
    neural, trees, shares = resolved.neural, resolved.trees, predicted.shares
    if "neural" in found.pieces:
        stops = bool(neural.patience)
        lines.append(_length("the network", "trains", neural.epochs, "epochs", shares.epochs, stops=stops))
    if "trees" in found.pieces:
        stops = bool(trees.early_stopping_rounds)
        lines.append(_length("the trees", "grow", trees.ntrees, "rounds", shares.rounds, stops=stops))
    lines.append("the machine stays as busy with other work as it was while this was measured")
    if len(plan.lanes) > 1 and plan.lanes[0].device == "cpu":
        lines.append(
            f"{counted(len(plan.lanes), 'lane')} share the cores, as they did while this was measured"
        )
    return tuple(lines)


def _length(who: str, does: str, most: int, unit: str, share: float, *, stops: bool) -> str:
    left = max(1, round(most * share))
    if stops and left < most:
        return f"early stopping leaves {who} {left} of {most} {unit}"
    return f"{who} {does} {most} {unit}"


def command(words: Sequence[str], place: Place) -> str:
    """The command to copy, for the place where this was asked."""
    if place.kind == "slurm queue":
        return "sparkgpu slurm write " + shlex.join(words)
    if place.kind == "spark":
        return "spark-submit jobs/train.py " + shlex.join(words)
    return f"{'!' if place.kind == 'notebook' else ''}sparkgpu run {shlex.join([*words, '--advise'])}"
