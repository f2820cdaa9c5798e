"""Going on with a run that was stopped: what it had decided stays, what it had finished is kept.

Only where it runs may change: other devices, another strategy for the network. Table and finished trials are
taken as they are; a network goes on from its last checkpoint, trees start again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparkgpu.config import toml as config_io
from sparkgpu.config.keys import DevicesConfig, RunConfig, dotted
from sparkgpu.errors import ConfigError
from sparkgpu.plan.plan import Plan
from sparkgpu.rundir.files import read_record
from sparkgpu.rundir.paths import RunPaths

_MAY_CHANGE = {
    "devices.gpus", "devices.cpu_lanes", "neural.strategy", "neural.model_parallel",
    "neural.micro_batch_size", "neural.max_restarts", "neural.rank_timeout_s", "cluster.nodes",
    "cluster.interface", "cluster.infiniband", "cluster.p2p_level", "cluster.master", "cluster.spark",
    "cluster.executors", "hang_after_s",
}  # fmt: skip


def resumed_config(
    out: Path | None, options: Mapping[str, Any], assignments: Iterable[str] = ()
) -> RunConfig:
    """The configuration of the run in `out`, on the devices and with the strategy asked for now.

    `options` and `assignments` are as `config_io.load` takes them. Raises `ConfigError` when there is no such
    run, or when something is asked for that would make it another run.
    """
    if out is None:
        raise ConfigError("--resume: name the folder of the run to go on with, by --out DIR.")
    paths = RunPaths(root=out)
    if not paths.config.is_file():
        raise ConfigError(f"--resume --out {out}: no run.toml there. Name the folder of a run.")
    before = config_io.load(file=paths.config)
    asked = config_io.load(options=options, assignments=assignments)
    known, wanted, default = (dotted(found.model_dump()) for found in (before, asked, RunConfig()))
    changed = {key for key, value in wanted.items() if value not in (default[key], known[key])}
    if refused := sorted(changed - _MAY_CHANGE):
        raise ConfigError(
            f"--resume --out {out}: {refused[0]} cannot change, a run goes on as it was begun; only devices "
            "and the network's strategy may. Leave it out, or start a new run."
        )

    def new(section: str) -> dict[str, Any]:
        return {key.removeprefix(section): wanted[key] for key in changed if key.startswith(section)}

    neural = before.neural.model_copy(update=new("neural."))
    cluster = before.cluster.model_copy(update=new("cluster."))
    devices = asked.devices if asked.devices != DevicesConfig() else before.devices
    return before.model_copy(
        update={
            **({"hang_after_s": asked.hang_after_s} if "hang_after_s" in changed else {}),
            "devices": devices,
            "neural": neural,
            "cluster": cluster,
            "repeats": _repeats(paths) or before.repeats,
        }
    )


def _repeats(paths: RunPaths) -> int | None:
    """How many seeds the run had been planned with; devices may be others now."""
    if not paths.plan.exists():
        return None
    plan = read_record(paths.plan, Plan)
    return len({trial.seed for trial in plan.trials})
