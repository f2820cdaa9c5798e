"""Where a command runs: a notebook, a Slurm job, a machine with a Slurm queue, Spark, or none of these.

Only the environment and the names of loaded modules are looked at; nothing is started and nobody is asked.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["notebook", "slurm job", "slurm queue", "spark", "terminal"]

_KERNEL = "ipykernel"
_NOTEBOOK = ("JPY_PARENT_PID", "JPY_SESSION_NAME", "COLAB_RELEASE_TAG", "DATABRICKS_RUNTIME_VERSION")
_SPARK = ("PYSPARK_GATEWAY_PORT", "SPARK_ENV_LOADED")


@dataclass(frozen=True, kw_only=True)
class Place:
    """One place; `nodes` and `gpus_per_node` are those of a Slurm job, None where Slurm does not tell."""

    kind: Kind
    found: str
    nodes: int = 1
    gpus_per_node: int | None = None


def find_place(
    environ: Mapping[str, str], modules: Collection[str], *, master: str | None = None, has_queue: bool
) -> Place:
    """The innermost place: a Slurm job may hold a notebook, which may hold a Spark session.

    `modules` are the names of the modules that Python has loaded, `master` is the Spark master that the
    configuration names, and `has_queue` tells whether Slurm's sbatch is here.
    """
    if master is not None and not master.startswith("local"):
        return Place(kind="spark", found=f"cluster.master = {master}")
    for name in _SPARK:
        if environ.get(name):
            return Place(kind="spark", found=f"started by spark-submit ({name} is set)")
    job = environ.get("SLURM_JOB_ID")
    if job:
        nodes = _count(environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES")) or 1
        gpus = _count(environ.get("SLURM_GPUS_ON_NODE"))
        size = f"{nodes} node{'' if nodes == 1 else 's'}" + (f" of {gpus} GPUs" if gpus else "")
        return Place(kind="slurm job", found=f"Slurm job {job}, {size}", nodes=nodes, gpus_per_node=gpus)
    if _KERNEL in modules:
        return Place(kind="notebook", found="a Jupyter kernel")
    for name in _NOTEBOOK:
        if environ.get(name):
            return Place(kind="notebook", found=f"a notebook's shell ({name} is set)")
    if has_queue:
        return Place(kind="slurm queue", found="sbatch is here, and this is not one of its jobs")
    return Place(kind="terminal", found="a terminal or a script")


def queue_is_here() -> bool:
    """Whether Slurm's sbatch is on the path."""
    return shutil.which("sbatch") is not None


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and int(text) > 0 else None
