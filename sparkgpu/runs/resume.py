"""Resumes a run that was stopped: its decisions stay, and finished work is kept.

Only the devices and the network's strategy may change. The table and finished trials are used as they are, a
network continues from its last checkpoint, and trees start again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparkgpu.config import toml as config_io
from sparkgpu.config.keys import DevicesConfig, PrepareConfig, RunConfig, dotted
from sparkgpu.errors import ConfigError
from sparkgpu.plan.plan import Plan
from sparkgpu.rundir.files import read_record
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.unfinished import has_table

_MAY_CHANGE = {
    "devices.gpus", "devices.cpu_lanes", "neural.strategy", "neural.model_parallel",
    "neural.micro_batch_size", "neural.max_restarts", "neural.rank_timeout_s", "cluster.nodes",
    "cluster.interface", "cluster.infiniband", "cluster.p2p_level", "cluster.master", "cluster.spark",
    "cluster.executors", "hang_after_s",
}  # fmt: skip


def resumed_config(
    out: Path | None, options: Mapping[str, Any], assignments: Iterable[str] = ()
) -> RunConfig:
    """The configuration of the run in `out`, with the devices and the strategy asked for now.

    `options` and `assignments` are those of `config.toml.load`. Raises `ConfigError` if there is no such run,
    or if an option would make it a different run.
    """
    if out is None:
        raise ConfigError("--resume: name the folder of the stopped run with --out DIR.")
    paths = RunPaths(root=out)
    if not paths.config.is_file():
        raise ConfigError(f"--resume --out {out}: it holds no run.toml. Give the folder of a run.")
    before = config_io.load(file=paths.config)
    asked = config_io.load(options=options, assignments=assignments)
    known, wanted, default = (dotted(found.model_dump()) for found in (before, asked, RunConfig()))
    changed = {key for key, value in wanted.items() if value not in (default[key], known[key])}
    if refused := sorted(changed - _MAY_CHANGE):
        raise ConfigError(
            f"--resume --out {out}: {refused[0]} cannot change in a resumed run; only devices and the "
            "network's strategy can. Leave it out, or start a new run."
        )

    def new(section: str) -> dict[str, Any]:
        return {key.removeprefix(section): wanted[key] for key in changed if key.startswith(section)}

    neural = before.neural.model_copy(update=new("neural."))
    cluster = before.cluster.model_copy(update=new("cluster."))
    devices = asked.devices if asked.devices != DevicesConfig() else before.devices
    plan = read_record(paths.plan, Plan) if paths.plan.exists() else None
    return before.model_copy(
        update={
            **({"hang_after_s": asked.hang_after_s} if "hang_after_s" in changed else {}),
            "devices": devices,
            "neural": neural,
            "cluster": cluster,
            # The number of devices may have changed since, and the source need not be there any more.
            **({"repeats": len({trial.seed for trial in plan.trials})} if plan else {}),
            **({"prepare": PrepareConfig(by=plan.prepared_by)} if plan and has_table(paths) else {}),
        }
    )


def for_cpu(config: RunConfig) -> RunConfig:
    """The configuration of a run that began on GPUs, for what is left of it on CPU lanes."""
    if config.trees.tree_method != "gpu_hist":
        return config
    return config.model_copy(update={"trees": config.trees.model_copy(update={"tree_method": "hist"})})
