"""The advice from the question to its record: plan, small run, prediction, ways."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sparkgpu.core.config.context_keys import ContextParameters
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.devices import choose_devices, find_machine
from sparkgpu.core.host.reservations import scratch_folder
from sparkgpu.core.plan.make_plan import make_plan
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.advice import AdviceRecord
from sparkgpu.core.table.demo import DEMO, DEMO_SOURCE, with_demo_target
from sparkgpu.core.table.demo_table import resolve_demo
from sparkgpu.core.table.dialect import Dialect
from sparkgpu.core.table.source import Source, find_source
from sparkgpu.core.words import counted, listed, seconds_text
from sparkgpu.h2o.proven import is_proven
from sparkgpu.ops.advise.options import Ways
from sparkgpu.ops.advise.predict import expected_steps, predict
from sparkgpu.ops.advise.speed import MachineSpeed, measure_speed
from sparkgpu.runs.provenance import check_engines, engine_with_cuda


def advise(config: RunConfig, tell: Callable[[str], None]) -> tuple[AdviceRecord, Plan]:
    """Measure this machine with a part of the table, and predict the run of `config`, whose plan it is.

    Raises what a run raises, before anything starts where it can be known.
    """
    if config.search is not None:
        raise ConfigError("search: how long it takes depends on what it tries. Leave it out of the advice.")
    if config.data.folders:
        raise ConfigError("target: advice is about a run with one target. Name one of them.")
    check_engines(config)
    source, config = source_of(config)
    machine = find_machine()
    devices = choose_devices(
        machine, gpus=config.devices.gpus, cpu_lanes=config.devices.cpu_lanes, environ=os.environ
    )
    on_gpu = devices[0].kind == "cuda"
    plan = make_plan(  # as the run will make it, but that no port is taken for it
        config, machine, devices, tuple(range(len(devices))),
        cuda_engine=engine_with_cuda() if on_gpu else None,
        proven=on_gpu and is_proven(machine, devices), started=time.monotonic(),
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
        assumptions=_assumptions(found, plan),
        options=Ways(found, predicted, plan, machine, devices, price).options(),
    )
    return record, plan


def source_of(config: RunConfig) -> tuple[Source, RunConfig]:
    """The source that `config` names, and the configuration with the target of the demo if that is it."""
    text = config.data.source
    if text is not None and text != DEMO:
        return find_source(text, Dialect.of(config.data)), config
    return DEMO_SOURCE, with_demo_target(config)


def _assumptions(found: MachineSpeed, plan: Plan) -> tuple[str, ...]:
    sample, trained, expected = found.sample, [], []
    for name, piece in found.pieces.items():
        parameters = found.resolved.of(name)
        if isinstance(parameters, ContextParameters):
            continue
        most, unit = (
            (parameters.epochs, "epochs")
            if isinstance(parameters, NeuralParameters)
            else (parameters.ntrees, "rounds")
        )
        trained.append(f"{name} {piece.steps:.0f} {unit}")
        left = expected_steps(parameters, found.size)
        stops = f"early stopping leaves {name} {left} of {most} {unit}"
        expected.append(stops if left < most else f"{name} trains for {most} {unit}")
    lines = [
        f"measured by a run on {sample.rows:,} of {sample.whole_rows:,} rows ({listed(trained)}), in "
        f"{seconds_text(found.wall_s)}",
        *expected,
        "the machine stays as busy with other work as it was while this was measured",
    ]
    if len(plan.lanes) > 1 and plan.lanes[0].device == "cpu":
        lines.append(
            f"{counted(len(plan.lanes), 'lane')} share the cores, as they did while this was measured"
        )
    return tuple(lines)
