"""Finds contradictions in a batch script, before a job waits for hours and then fails.

Nothing here needs a cluster; Slurm's commands are asked as well if they exist. Each mismatch is a sentence
that names both places and the right value.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sparkgpu.core.config.keys import SlurmConfig
from sparkgpu.core.errors import SparkgpuError
from sparkgpu.core.host.devices import Machine, choose_devices
from sparkgpu.core.host.gpus import Gpu
from sparkgpu.core.host.rank_command import network_environment
from sparkgpu.core.plan.plan import Plan, make_plan
from sparkgpu.core.words import counted
from sparkgpu.lanes.slurm.queue import objection
from sparkgpu.lanes.slurm.script_reader import Options, Script, read_script

_MEMORY = 2**40  # of an unknown machine: enough for any plan
_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}")


def mismatches(file: Path) -> list[str]:
    """The faults of the script, one sentence each. Raises `ConfigError` if it cannot be read."""
    script = read_script(file)
    found = [*_shell(file), *_times(script), *_log(script), *_variables(script)]
    try:
        plan = _plan(script)
    except SparkgpuError as error:
        return [*found, str(error)]
    found += _several(script, plan) if script.torchrun is not None else _alone(script)
    if not found and (refused := objection(file)):
        found.append(f"Slurm would refuse the job: {refused}.")
    return found


def _plan(script: Script) -> Plan:
    """The plan that the run would make on a node as the script requests it."""
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


def _several(script: Script, plan: Plan) -> Iterator[str]:
    """Check for one torchrun on each node, with a rank for each device."""
    asked, srun, torchrun = script.directives, script.srun, script.torchrun
    assert srun is not None and torchrun is not None
    nodes = script.config.cluster.nodes
    for place, options, name in (
        ("#SBATCH", asked, "nodes"), ("srun", srun, "nodes"), ("torchrun", torchrun, "nnodes")
    ):  # fmt: skip
        if (value := _number(options, name)) is not None and value != nodes:
            yield f"{place} --{name}={value}, but the run has cluster.nodes = {nodes}; make them equal."
    for place, options in (("#SBATCH", asked), ("srun", srun)):
        tasks = _number(options, "ntasks-per-node")
        if tasks is not None and tasks != 1:
            yield (
                f"{place} --ntasks-per-node={tasks} would start {counted(tasks, 'torchrun')} on a node, and "
                "each starts all ranks of it; set it to 1."
            )
    lanes = len(plan.lanes)
    ranks = _number(torchrun, "nproc-per-node")
    gpus = _gpus(asked)
    on_cpu = script.config.devices.cpu_lanes is not None
    if ranks is None:
        yield "torchrun has no --nproc-per-node, so it starts one rank; set it to the devices per node."
    elif ranks != lanes:
        devices = f"--cpu-lanes {lanes}" if on_cpu else f"{counted(lanes, 'GPU')} on a node"
        yield f"torchrun --nproc-per-node={ranks}, but the run has {devices}; make them equal."
    elif gpus and not on_cpu and ranks > gpus:
        yield f"{counted(ranks, 'rank')} on a node with {counted(gpus, 'GPU')}: each rank needs its own."
    if (of_step := _gpus(srun)) and of_step != gpus:
        asked_gpus = counted(gpus, "GPU")
        yield f"srun --gpus-per-node={of_step}, but #SBATCH asks for {asked_gpus} a node; make them equal."
    cpus = _number(asked, "cpus-per-task")
    if cpus is not None and ranks is not None and cpus < ranks:
        yield f"#SBATCH --cpus-per-task={cpus} gives {ranks} ranks less than one CPU each; ask for {ranks}."
    if _number(torchrun, "max-restarts"):
        yield "torchrun --max-restarts: the run starts lost ranks itself (neural.max_restarts); leave it out."
    if torchrun.get("rdzv-backend", "") != "c10d":
        yield "torchrun on several nodes needs --rdzv-backend=c10d and an endpoint on the first node."
    if not torchrun.get("rdzv-endpoint"):
        yield "torchrun has no --rdzv-endpoint, so its agents cannot meet; give it the first node's address."
    if not any(trial.nodes > 1 for trial in plan.trials):
        yield "the launcher is not used, since no network trains on several nodes; set cluster.nodes."


def _alone(script: Script) -> Iterator[str]:
    """Check for one process on one node, which starts all others itself."""
    nodes, tasks = _number(script.directives, "nodes"), _number(script.directives, "ntasks-per-node")
    if script.config.cluster.nodes > 1:
        yield (
            f"cluster.nodes = {script.config.cluster.nodes}, but the script exports no SPARKGPU_LAUNCHER "
            "to start ranks; add --set cluster.nodes=1 to the run, or write network.sbatch."
        )
    elif nodes is not None and nodes != 1:
        yield f"#SBATCH --nodes={nodes}, but this run uses only one; set it to 1."
    tasks = tasks if tasks is not None else _number(script.directives, "ntasks")
    if tasks is not None and tasks != 1:
        yield f"#SBATCH asks for {tasks} tasks, but the run is one process that starts its own; set it to 1."
    asked = script.config.devices.gpus
    gpus = _gpus(script.directives)
    if asked is not None and not gpus:
        yield "the run asks for GPUs, but #SBATCH has no --gpus-per-node; add it, or run with --cpu-lanes."
    elif asked is not None and asked != "all" and len(asked) != gpus:
        yield f"--gpus {','.join(asked)}, but #SBATCH --gpus-per-node={gpus}; make them equal."
    elif gpus and script.config.devices.cpu_lanes is not None:
        yield f"#SBATCH --gpus-per-node={gpus}, but the run trains on CPU lanes; leave it out."


def _times(script: Script) -> Iterator[str]:
    """A job that can resume must get a signal before the time limit, and pass it to the run."""
    time = script.directives.get("time", "")
    limit = _seconds(time)
    if time and limit is None and time.upper() not in ("UNLIMITED", "INFINITE"):
        yield (
            f"#SBATCH --time={time} is not a time limit; write minutes, HOURS:MINUTES:SECONDS or "
            "DAYS-HOURS:MINUTES:SECONDS."
        )
    signal = script.directives.get("signal")
    if "requeue" in script.directives and signal is None:
        yield (
            "#SBATCH --requeue without --signal: the time limit would end the run without a checkpoint; add "
            f"--signal=B:USR1@{SlurmConfig().notice_s}."
        )
    if signal is None:
        return
    found = re.fullmatch(r"(?:[RB]+:)?(\w+)@(\d+)", signal)
    if found is None or not signal.startswith("B:") or found[1] not in ("USR1", "SIGUSR1", "10"):
        yield f"#SBATCH --signal={signal}: only B:USR1@SECONDS reaches the script; use that."
        return
    if not re.search(r"^\s*trap\s.*\bUSR1\b", script.text, re.MULTILINE):
        yield f"#SBATCH --signal={signal}, but no trap in the script passes USR1 to the run; add it."
    if "no-requeue" in script.directives and "scontrol requeue" in script.text:
        yield "#SBATCH --no-requeue, but the script puts itself back into the queue; set it to --requeue."
    if limit is not None and limit <= int(found[2]):
        yield (
            f"#SBATCH --time={time} is shorter than its notice of {found[2]} s; give the job more time or a "
            "shorter notice."
        )


def _shell(file: Path) -> Iterator[str]:
    """Bash's own syntax check of the script, which is not run."""
    bash = shutil.which("bash", path=f"{os.environ.get('PATH', '')}:/bin:/usr/bin")
    if bash is None:
        return
    found = subprocess.run([bash, "-n", str(file)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if found.returncode:
        lines = found.stderr.strip().splitlines() or ["no reason given"]
        yield f"bash cannot read the script: {lines[0].removeprefix(f'{file}: ')}."


def _log(script: Script) -> Iterator[str]:
    output = script.directives.get("output")
    if output and not (folder := Path(output).parent).is_dir():
        yield f"#SBATCH --output={output}: there is no folder {folder}, and Slurm makes none; create it."


def _variables(script: Script) -> Iterator[str]:
    """The script's variables override the configuration, so they must agree with it."""
    for name, value in network_environment(script.config.cluster).items():
        found = script.variables.get(name, value)
        if found != value:
            yield f"the script exports {name}={found}, but [cluster] means {value}; make them equal."


def _gpus(options: Options) -> int:
    """GPUs of a node from ``--gpus-per-node`` or ``--gres`` (``2``, ``h100:2``, ``gpu:h100:2``)."""
    text = options.get("gpus-per-node") or options.get("gres", "")
    last = text.rpartition(":")[2]
    return int(last) if last.isdigit() else 1 if text else 0


def _number(options: Options, name: str) -> int | None:
    value = options.get(name, "")
    return int(value) if value.isdigit() else None


def _seconds(limit: str) -> int | None:
    """Read a time limit of Slurm: minutes, min:s, h:min:s, days-h, days-h:min, days-h:min:s."""
    if _TIME.fullmatch(limit) is None:
        return None
    days, mark, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if not mark and len(parts) < 3:
        parts = [0, *parts]
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
