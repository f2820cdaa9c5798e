"""One rank of a gang, started by torchrun's agent: ``python -m sparkgpu.neural.ranks``.

It writes its own success marker, since the agent's report does not suffice when another program starts the
ranks. For a failure that a restart would only repeat, it writes a refusal and ends normally.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from sparkgpu.core.config import toml
from sparkgpu.core.config.models import NeuralConfig
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.errors import SparkgpuError
from sparkgpu.core.host.processes import die_with_parent
from sparkgpu.core.plan.devices import ways
from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import read_json, write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import read_schema
from sparkgpu.neural.engine import usable_device
from sparkgpu.neural.launchers.gang_files import SMALLER, read_until
from sparkgpu.neural.launchers.heartbeat import FINISHING, TRAINING, Heartbeat
from sparkgpu.neural.launchers.rendezvous import meet, restarts
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.training.memory import NeedsSmallerBatches
from sparkgpu.neural.training.precision import agreed, choose_precision
from sparkgpu.neural.training.train import Report
from sparkgpu.neural.training.trial import run_rank
from sparkgpu.trials.engine import Trial

_REPORT_EVERY_S = 0.4
_WAIT_LONGER_S = 15.0  # than the gang's own limit, so that the gang can name the hung rank first


def join(
    config: NeuralConfig,
    device: torch.device,
    store: Store,
    rank: int,
    world_size: int,
) -> None:
    """Make this process a rank of the default group: NCCL on GPUs, gloo on CPUs."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=config.rank_timeout_s + _WAIT_LONGER_S),
        device_id=device if device.type == "cuda" else None,
    )


def make_strategy(name: str, config: NeuralParameters, device: torch.device, device_name: str) -> Strategy:
    """The strategy of this rank; the default group is there where there are several."""
    copies, _ = ways(config, name, dist.get_world_size() if dist.is_initialized() else 1)
    place = RankPlace(
        device=device,
        precision=agreed(choose_precision(config, device, device_name, name)),
        copies=copies,
        batch_size=config.batch_size,
        micro_rows=config.micro_batch_size,
    )
    strategy: Strategy = STRATEGIES.find(name).loaded().at(place)
    return strategy


def main() -> None:
    """Run one rank. Exit status 1 asks for another attempt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--trial", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--parent", type=int, help="the process that must be this one's parent")
    parser.add_argument("--meet", choices=("file", "agent"), default="file")
    parser.add_argument("--output", type=Path, help="the folder for a log of this rank alone")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if arguments.output is not None:
        _redirect(arguments.output / f"rank-{rank}.log")
    number, tcp = meet() if arguments.meet == "agent" else (restarts(), None)
    attempt = arguments.folder / f"attempt-{number}"
    heartbeat = Heartbeat(attempt, rank)
    paths = RunPaths(root=arguments.run_dir)
    try:
        store = tcp or dist.FileStore(str(attempt / "store"), world_size)  # type: ignore[attr-defined]
        _run(arguments.trial, paths, arguments.folder, attempt, heartbeat, store, rank, world_size)
        write_text(attempt / f"rank-{rank}.done", "")
    except SparkgpuError as error:
        traceback.print_exc()
        write_json(arguments.folder / "refused.json", {"kind": error.kind, "message": str(error)})
    except BaseException as error:
        traceback.print_exc()
        if isinstance(error, NeedsSmallerBatches):
            write_json(arguments.folder / SMALLER, {"micro_rows": error.micro_rows, "note": error.note})
        lines = str(error).strip().splitlines()
        write_json(
            attempt / f"rank-{rank}.error.json",
            {"message": f"{type(error).__name__}: {lines[0] if lines else 'no message'}", "at": time.time()},
        )
        _leave(1)
    _leave(0)


def _redirect(log: Path) -> None:
    """Send all further output of this process, also that of native libraries, to `log`."""
    with log.open("ab", buffering=0) as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())


def _run(
    trial: str,
    paths: RunPaths,
    folder: Path,
    attempt: Path,
    heartbeat: Heartbeat,
    store: Store,
    rank: int,
    world_size: int,
) -> None:
    plan = Plan.model_validate(read_json(paths.plan))
    spec = next(spec for spec in plan.trials if spec.name == trial)
    lane = plan.lanes[spec.gang[0]]
    config = NeuralParameters.model_validate_json((folder / "config.json").read_text(encoding="utf-8"))
    smaller = folder / SMALLER
    if smaller.exists():
        config = config.model_copy(update={"micro_batch_size": read_json(smaller)["micro_rows"]})
    device = usable_device(lane, int(os.environ["LOCAL_RANK"]))
    torch.set_num_threads(lane.neural_threads)
    if spec.strategy != "single":
        join(config, device, store, rank, world_size)
    schema = read_schema(paths)
    beside_bytes = 0
    if device.type == "cuda":
        resolved = plan.resolved(toml.load(file=paths.config), TableSize.of(schema))
        beside_bytes = plan.bytes_of_trees(spec, resolved, schema)
    strategy = make_strategy(spec.strategy, config, device, lane.device_name)
    strategy.beat = heartbeat.beat
    strategy.slow_work = heartbeat.slow_work
    events = _events(paths, lane, attempt, leads=strategy.leads)
    record = run_rank(
        Trial(
            spec=spec,
            parameters=config,
            schema=schema,
            run=paths,
            lane=lane,
            events=events,
            scratch=folder,
            beside_bytes=beside_bytes,
            may_wait=plan.master is None,
            until=read_until(folder),
        ),
        strategy,
        lambda metric: _reporter(heartbeat, events, spec, metric, leads=strategy.leads),
        on_trained=lambda: heartbeat.beat(FINISHING),
    )
    # The group is not destroyed: that may wait for ranks that have ended, and this process ends now anyway.
    if record is not None:
        write_json(folder / "record.json", record)


def _events(paths: RunPaths, lane: LanePlan, attempt: Path, *, leads: bool) -> EventWriter:
    """Where this rank reports: the leading rank to the lane's files, the others to their own folder."""
    own = paths.lane(lane.index)
    if leads:
        return EventWriter(own.events("neural"), own.phases("neural"))
    name = f"rank-{os.environ['RANK']}"
    return EventWriter(attempt / f"{name}.events.jsonl", attempt / f"{name}.phases.json")


def _reporter(
    heartbeat: Heartbeat, events: EventWriter, spec: TrialSpec, metric: str, *, leads: bool
) -> Report:
    last = 0.0

    def report(done: float, epoch: int, value: float | None) -> None:
        nonlocal last
        heartbeat.beat(TRAINING)
        now = time.perf_counter()
        if leads and (now - last >= _REPORT_EVERY_S or done >= 1.0):
            last = now
            named = metric if value is not None else None
            events.progress(spec.name, done, step=epoch, metric=named, value=value)

    return report


def _leave(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of native libraries can keep an interpreter alive; all files are closed here.
    os._exit(status)


if __name__ == "__main__":
    main()
