"""Finds contradictions in a batch script, before a job waits for hours and then fails.

Nothing here needs a cluster; sbatch is asked as well if its controller answers. Each mismatch is a sentence
that names both places and the right value. Only plain shell is understood: directives, assignments of literal
values, one launcher, one run. The variables of a job have no value before the job runs, so they stay.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import RunConfig, SlurmConfig
from sparkgpu.core.config.toml import OPTIONS
from sparkgpu.core.errors import ConfigError, SparkgpuError
from sparkgpu.core.host.devices import Machine, choose_devices
from sparkgpu.core.host.gpus import Gpu
from sparkgpu.core.host.rank_command import LAUNCHER
from sparkgpu.core.plan.make_plan import make_plan
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.words import counted
from sparkgpu.lanes.slurm.queue import objection

_Options = dict[str, str]

_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(-[^\s=]+)(?:=|[ \t]+)?(\S+)?", re.MULTILINE)
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(\S*|'[^'\n]*')\s*$", re.MULTILINE)
_RUN = re.compile(r"^\s*(?:srun\s.*)?sparkgpu run\s+(.*--config\s.*)$", re.MULTILINE)
_TORCHRUN = ("torchrun", "torch.distributed.run")
_SHORT = {"-N": "nodes", "-t": "time"}
_MEMORY = 2**40  # of an unknown machine: enough for any plan
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


@dataclass(frozen=True, kw_only=True)
class _Script:
    """The parts of a batch script. `srun` and `torchrun` are the launcher's options; empty without one."""

    directives: _Options
    srun: _Options
    torchrun: _Options
    config: RunConfig


def mismatches(file: Path) -> list[str]:
    """The faults of the script, one sentence each. Raises `ConfigError` if it cannot be read."""
    script = _read(file)
    found = [*_times(script.directives)]
    try:
        plan = _plan(script)
    except SparkgpuError as error:
        return [*found, str(error)]
    found += _counts(script, len(plan.lanes))
    if not found and (refused := objection(file)):
        found.append(f"Slurm would refuse the job: {refused}.")
    return found


def _plan(script: _Script) -> Plan:
    config, count = script.config, _gpus(script.directives)
    lanes, asked = config.devices.cpu_lanes, config.devices.gpus
    if lanes is not None:
        count = 0
    elif asked not in (None, "all"):
        count = len(asked)
    cards = tuple(Gpu(index=i, uuid=f"GPU-{i}", title="", memory_bytes=_MEMORY) for i in range(count))
    machine = Machine(cores=max(count, lanes or 1), memory_bytes=_MEMORY, gpus=cards)
    devices = choose_devices(machine, gpus=None, cpu_lanes=lanes, environ={})
    return make_plan(config, machine, devices, tuple(range(20000, 20000 + 8 * len(devices), 8)))


def _counts(script: _Script, lanes: int) -> Iterator[str]:
    """Nodes, tasks, GPUs and ranks: what the script requests, what it starts, and what the run uses."""
    asked, srun, torchrun = script.directives, script.srun, script.torchrun
    config = script.config
    nodes, on_cpu = config.cluster.nodes, config.devices.cpu_lanes is not None
    if nodes > 1 and not torchrun:
        yield (
            f"cluster.nodes = {nodes}, but the script exports no SPARKGPU_LAUNCHER to start ranks; add --set "
            "cluster.nodes=1 to the run, or write network.sbatch."
        )
    for place, options, name in (
        ("#SBATCH", asked, "nodes"), ("srun", srun, "nodes"), ("torchrun", torchrun, "nnodes")
    ):  # fmt: skip
        if (value := _number(options, name)) not in (None, nodes):
            yield f"{place} --{name}={value}, but the run has cluster.nodes = {nodes}; make them equal."
    for place, options in (("#SBATCH", asked), ("srun", srun)):
        if (tasks := _number(options, "ntasks-per-node")) not in (None, 1):
            yield (
                f"{place} --ntasks-per-node={tasks}, but the one task on a node starts all its processes; "
                "set it to 1."
            )
    gpus, listed = _gpus(asked), config.devices.gpus
    used = 0 if on_cpu else max(gpus, 1) if listed == "all" else len(listed) if listed else gpus
    if gpus != used:
        yield (
            f"#SBATCH asks for {counted(gpus, 'GPU')} on a node, but the run uses "
            f"{counted(used, 'GPU')}; make them equal (--gpus-per-node, --gpus, --cpu-lanes)."
        )
    if torchrun and (ranks := _number(torchrun, "nproc-per-node")) != lanes:
        devices = f"--cpu-lanes {lanes}" if on_cpu else f"{counted(lanes, 'GPU')} on a node"
        yield f"torchrun --nproc-per-node={ranks or 1}, but the run has {devices}; make them equal."


def _times(asked: _Options) -> Iterator[str]:
    """A job that can resume must get a signal before the time limit."""
    signal = asked.get("signal")
    if signal is None:
        if "requeue" in asked:
            yield (
                "#SBATCH --requeue without --signal: the time limit would end the run without a checkpoint; "
                f"add --signal=B:USR1@{SlurmConfig().notice_s}."
            )
        return
    notice = re.fullmatch(r"B:(?:SIG)?USR1@(\d+)", signal)
    limit = _seconds(asked.get("time", ""))
    if notice is None:
        yield f"#SBATCH --signal={signal}: only B:USR1@SECONDS reaches the script; use that."
    elif limit is not None and limit <= int(notice[1]):
        yield (
            f"#SBATCH --time={asked['time']} is shorter than its notice of {notice[1]} s; give the job more "
            "time or a shorter notice."
        )


def _gpus(options: _Options) -> int:
    """GPUs of a node from ``--gpus-per-node`` or ``--gres`` (``2``, ``h100:2``, ``gpu:h100:2``)."""
    text = options.get("gpus-per-node") or options.get("gres", "")
    last = text.rpartition(":")[2]
    return int(last) if last.isdigit() else 1 if text else 0


def _number(options: _Options, name: str) -> int | None:
    value = options.get(name, "")
    return int(value) if value.isdigit() else None


def _seconds(limit: str) -> int | None:
    """Read a time limit of Slurm: minutes, min:s, h:min:s, days-h, days-h:min, days-h:min:s."""
    found = _TIME.fullmatch(limit)
    if found is None:
        return None
    days, *parts = (int(part) if part else 0 for part in found.groups())
    if found[1] is None and found[4] is None:
        parts = [0, *parts[:2]]
    hours, minutes, seconds = parts
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _read(file: Path) -> _Script:
    """Raises `ConfigError` if the file cannot be read, or if the run that it starts cannot be recognised."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}). Give the path of a batch script.") from None
    directives = {_SHORT.get(option, option.lstrip("-")): value for option, value in _DIRECTIVE.findall(text)}
    joined = text.replace("\\\n", "")
    launcher = re.search(rf'{LAUNCHER}="([^"]*)"', joined)
    srun, torchrun = _launcher(file, launcher[1]) if launcher else ({}, {})
    return _Script(directives=directives, srun=srun, torchrun=torchrun, config=_config(file, joined))


def _launcher(file: Path, line: str) -> tuple[_Options, _Options]:
    words = shlex.split(line)
    start = next((at for at, word in enumerate(words) if Path(word).name in _TORCHRUN), None)
    if start is None:
        raise ConfigError(
            f"{file}: {LAUNCHER} starts no torchrun; write the scripts again, then change them."
        )
    return dict(_options(words[:start])), dict(_options(words[start + 1 :]))


def _options(words: list[str]) -> list[tuple[str, str]]:
    """The options by their long names, each with its value; of a flag that is an empty text."""
    found = []
    for place, word in enumerate(words):
        if word.startswith("-"):
            name, mark, value = word.partition("=")
            following = words[place + 1] if place + 1 < len(words) else "-"
            if not mark and not following.startswith("-"):
                value = following
            found.append((_SHORT.get(name, name.lstrip("-")).replace("_", "-"), value))
    return found


def _config(file: Path, text: str) -> RunConfig:
    found = _RUN.search(text)
    if found is None:
        raise ConfigError(
            f"{file}: no line in it starts `sparkgpu run --config FILE`; write the scripts again with "
            "`sparkgpu slurm write`."
        )
    variables = {name: value.strip("'\"") for name, value in _ASSIGNMENT.findall(text)}
    line = Template(found[1]).safe_substitute(variables)
    options: dict[str, object] = {}
    assignments: list[str] = []
    config: Path | None = None
    for option, value in _options([word for word in shlex.split(line.rstrip().rstrip("&")) if word]):
        name = option.replace("-", "_")
        if name == "config":
            config = Path(value)
        elif name == "set":
            assignments.append(value)
        elif name in OPTIONS:
            options[OPTIONS[name]] = int(value) if value.isdigit() and name != "gpus" else value
    if config is None or not config.is_file():
        raise ConfigError(f"{file}: it reads {config}, which does not exist; write the scripts again.")
    return config_io.load(file=config, options=options, assignments=assignments)
