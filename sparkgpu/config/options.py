"""The options shared by the command line, the Python door and batch scripts, and the key that each sets."""

from __future__ import annotations

from typing import Any

OPTIONS = {
    "source": "data.source",
    "target": "data.target",
    "task": "data.task",
    "gpus": "devices.gpus",
    "cpu_lanes": "devices.cpu_lanes",
    "repeats": "repeats",
    "strategy": "neural.strategy",
    "preset": "preset",
    "also": "also",
    "time_limit": "time_limit",
    "search": "search",
    "nodes": "cluster.nodes",
    "cpus_per_node": "slurm.cpus_per_node",
    "partition": "slurm.partition",
    "cpu_partition": "slurm.cpu_partition",
    "account": "slurm.account",
    "time": "slurm.time",
    "modules": "slurm.modules",
    "setup": "slurm.setup",
}


def keyed(**options: Any) -> dict[str, Any]:
    """The values of options by the keys that they set, for `sparkgpu.config.toml.load`."""
    return {OPTIONS[name]: value for name, value in options.items()}
