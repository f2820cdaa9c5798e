"""Writes the batch scripts: lanes on one node, one network over several, and trees on all cores of a node.

Users can read and change them; their shared configuration is in the same folder.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import DevicesConfig, RunConfig
from sparkgpu.core.config.toml import run_schema
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.rank_command import network_environment
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.words import counted

_PROJECT = Path(__file__).parents[3]
_MOST_TURNS = 20  # of a requeued job: one that never ends would use up its account


@dataclass(frozen=True, kw_only=True)
class NodeShape:
    """What a node of the cluster offers to a job: GPUs or, without any, a number of ranks on its cores."""

    gpus_per_node: int
    ranks_per_node: int

    @property
    def devices(self) -> str:
        """The options that make a run on one node use all of it."""
        return "--gpus all" if self.gpus_per_node else f"--cpu-lanes {self.ranks_per_node}"

    @property
    def words(self) -> str:
        if self.gpus_per_node:
            return counted(self.gpus_per_node, "GPU")
        return counted(self.ranks_per_node, "CPU rank")


def write_scripts(config: RunConfig, shape: NodeShape, folder: Path) -> list[Path]:
    """Write run.toml and the scripts into `folder`, which all nodes must see. Returns their paths.

    Raises `ConfigError` if the folder cannot be written, if it holds a script with other content, or if a
    node cannot provide what is asked for.
    """
    if shape.gpus_per_node and shape.ranks_per_node != shape.gpus_per_node:
        raise ConfigError(
            f"--ranks-per-node {shape.ranks_per_node}: each rank uses one of a node's {shape.gpus_per_node} "
            "GPUs; leave it out, or set --gpus-per-node 0 for ranks on CPUs."
        )
    folder = folder.resolve()
    try:
        for name in ("logs", "runs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        shared = config.model_copy(update={"devices": DevicesConfig()})
        texts = {folder / "run.toml": config_io.dump(shared)}
        for name, settings in _scripts(config, shape).items():
            texts[folder / f"{name}.sbatch"] = _text(folder, name, settings, config)
        for file, text in texts.items():
            if file.exists() and file.read_text(encoding="utf-8") != text:
                raise ConfigError(
                    f"--out {folder}: {file.name} there has other content, perhaps your own changes. "
                    "Choose another folder, or remove the file."
                )
        write_text(folder / config_io.SCHEMA_FILE, run_schema())
        for file, text in texts.items():
            write_text(file, text, mode=0o600 if file.suffix == ".toml" else 0o666)
        return [file for file in texts if file.suffix == ".sbatch"]
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written ({error.strerror}). Choose another.") from None


def _scripts(config: RunConfig, shape: NodeShape) -> dict[str, dict[str, Any]]:
    alone = "--set cluster.nodes=1 --strategy auto"
    trees = f"--cpu-lanes 1 {alone} --set 'models=[\"trees\"]'"
    if config.trees.tree_method == "gpu_hist":
        trees += " --set trees.tree_method=hist"
    found: dict[str, dict[str, Any]] = {
        "lanes": {
            "purpose": f"Trees and networks side by side on one node with {shape.words}, one lane for each.",
            "gpus_per_node": shape.gpus_per_node, "arguments": f"{shape.devices} {alone}",
        },
        "trees-cpu": {
            "purpose": "Trees alone, on all cores of one node and without a GPU.",
            "cpus_per_node": None, "arguments": trees,
        },
    }  # fmt: skip
    if config.cluster.nodes > 1:
        found["network"] = {
            "purpose": f"One network on {config.cluster.nodes} nodes with {shape.words} each.",
            "nodes": config.cluster.nodes, "gpus_per_node": shape.gpus_per_node,
            "ranks_per_node": shape.ranks_per_node, "launch": True,
            "arguments": shape.devices,
        }  # fmt: skip
    return found


def _text(folder: Path, name: str, settings: dict[str, Any], config: RunConfig) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("sparkgpu.lanes.slurm", "."), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    slurm = config.slurm
    partition = slurm.cpu_partition or slurm.partition if name == "trees-cpu" else slurm.partition
    options = {"partition": partition, "account": slurm.account, "time": slurm.time}
    return environment.get_template("job.sbatch.j2").render(
        {
            "name": name,
            "folder": folder,
            "here": shlex.quote(str(folder)),
            "cpus_per_node": slurm.cpus_per_node,
            "options": [(option, value) for option, value in options.items() if value is not None],
            "notice_s": slurm.notice_s,
            "modules": [shlex.quote(module) for module in slurm.modules],
            "setup": _activation() if slurm.setup is None else slurm.setup,
            "network": network_environment(config.cluster),
            "nodes": 1,
            "gpus_per_node": 0,
            "launch": False,
            "most_turns": _MOST_TURNS,
            **settings,
        }
    )


def _activation() -> tuple[str, ...]:
    own = _PROJECT / "env" / "activate.sh"
    if own.exists() and Path(sys.prefix) == _PROJECT / ".venv":
        return (f"source {shlex.quote(str(own))}",)
    if sys.prefix != sys.base_prefix:
        return (f"source {shlex.quote(str(Path(sys.prefix) / 'bin' / 'activate'))}",)
    return (f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"',)
