"""Where a command runs: a notebook, a Slurm job, a machine with a Slurm queue, Spark, or none of these.

Only the environment and the names of loaded modules are looked at; nothing is started and nobody is asked.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sparkgpu.core.rundir.advice import OptionRecord
from sparkgpu.core.words import counted

Kind = Literal["notebook", "slurm job", "slurm queue", "spark", "terminal"]

_NOTEBOOK = ("JPY_PARENT_PID", "JPY_SESSION_NAME", "COLAB_RELEASE_TAG", "DATABRICKS_RUNTIME_VERSION")
_SPARK = ("PYSPARK_GATEWAY_PORT", "SPARK_ENV_LOADED")


@dataclass(frozen=True, kw_only=True)
class Place:
    """One place, and how it was recognized."""

    kind: Kind
    found: str

    def command(self, words: Sequence[str]) -> str:
        """The command to copy here; `words` are its source and its options."""
        if self.kind == "slurm queue":
            return "sparkgpu slurm write " + shlex.join(words)
        if self.kind == "spark":
            return "spark-submit jobs/train.py " + shlex.join(words)
        return f"{'!' if self.kind == 'notebook' else ''}sparkgpu run {shlex.join([*words, '--advise'])}"

    def options(self) -> tuple[OptionRecord, OptionRecord]:
        """What Slurm and a notebook are for here."""
        slurm = OptionRecord(name="Slurm", standing="not here", why="no Slurm was found (no job, no sbatch)")
        if self.kind == "slurm job":
            slurm = OptionRecord(name="Slurm", standing="chosen", why=self.found)
        elif self.kind == "slurm queue":
            why = "`sparkgpu slurm write` makes scripts for its queue"
            slurm = OptionRecord(name="Slurm", standing="possible", why=why)
        why = "sparkgpu.run does the same in scripts and notebooks"
        notebook = OptionRecord(name="notebook", standing="not here", why=why)
        if self.kind == "notebook":
            why = f"{self.found}: sparkgpu.run starts processes of its own, with ddp as well"
            notebook = OptionRecord(name="notebook", standing="chosen", why=why)
        return slurm, notebook


def find_place(
    environ: Mapping[str, str], modules: Collection[str], *, master: str | None = None, has_queue: bool
) -> Place:
    """The innermost place: a Slurm job may hold a notebook, which may hold a Spark session.

    `modules` are the names of the modules that Python has loaded, `master` is the Spark master that the
    configuration names, and `has_queue` tells whether Slurm's sbatch is here.
    """
    if master is not None and not master.startswith("local"):
        return Place(kind="spark", found=f"cluster.master = {master}")
    if name := _first_set(_SPARK, environ):
        return Place(kind="spark", found=f"started by spark-submit ({name} is set)")
    if job := environ.get("SLURM_JOB_ID"):
        nodes = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or "1"
        gpus = environ.get("SLURM_GPUS_ON_NODE")
        size = (counted(int(nodes), "node") if nodes.isdecimal() else "some nodes") + (
            f" of {gpus} GPUs" if gpus else ""
        )
        return Place(kind="slurm job", found=f"Slurm job {job}, {size}")
    if "ipykernel" in modules:
        return Place(kind="notebook", found="a Jupyter kernel")
    if name := _first_set(_NOTEBOOK, environ):
        return Place(kind="notebook", found=f"a notebook's shell ({name} is set)")
    if has_queue:
        return Place(kind="slurm queue", found="sbatch is here, and this is not one of its jobs")
    return Place(kind="terminal", found="a terminal or a script")


def _first_set(names: Collection[str], environ: Mapping[str, str]) -> str | None:
    return next((name for name in names if environ.get(name)), None)
