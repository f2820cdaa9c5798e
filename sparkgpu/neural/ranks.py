"""One rank of a gang, started by torchrun's agent: ``python -m sparkgpu.neural.ranks``.

It writes its own success marker, since the agent's report does not suffice when another program starts the
ranks. For a failure that another attempt would only repeat, it writes a refusal and ends normally.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from sparkgpu.core.config.model_keys import NeuralConfig
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.errors import SparkgpuError
from sparkgpu.core.host.processes import die_with_parent
from sparkgpu.core.plan.devices import ways
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import read_schema
from sparkgpu.neural.engine import usable_device
from sparkgpu.neural.launchers.gang import RECORD, REFUSED, SMALLER, read_trial
from sparkgpu.neural.launchers.heartbeat import SLOW_WORK, Heartbeat, rank_file
from sparkgpu.neural.launchers.store_watch import StoreWatch
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.training.memory import NeedsSmallerBatches
from sparkgpu.neural.training.precision import choose_precision
from sparkgpu.neural.training.trial import run_rank
from sparkgpu.trials.engine import Trial

_MEETING_S = 60.0
_WAIT_LONGER_S = 15.0  # than the gang's own limit, so that the gang can name the hung rank first


def join(config: NeuralConfig, device: torch.device, store: Store, rank: int, world_size: int) -> None:
    """Make this process a rank of the default group: NCCL on GPUs, gloo on CPUs.

    A rank waits for one that reads or saves as long as the gang's watcher does, and longer.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=SLOW_WORK * config.rank_timeout_s + _WAIT_LONGER_S),
        device_id=device if device.type == "cuda" else None,
    )


def make_strategy(name: str, config: NeuralParameters, device: torch.device, device_name: str) -> Strategy:
    """The strategy of this rank, once the default group is there."""
    copies, _ = ways(config, name, dist.get_world_size() if dist.is_initialized() else 1)
    place = RankPlace(
        device=device,
        precision=choose_precision(config, device, device_name, name),
        copies=copies,
        batch_size=config.batch_size,
        micro_rows=config.micro_batch_size,
    )
    strategy: Strategy = STRATEGIES.find(name).loaded()(place)
    return strategy


def main() -> None:
    """Run one rank. Exit status 1 asks for another attempt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--attempt", type=Path, required=True, help="the folder of all ranks' signs")
    parser.add_argument("--parent", type=int, help="the process that must be this one's parent")
    parser.add_argument("--meet", choices=("file", "agent"), default="file")
    parser.add_argument("--output", type=Path, help="the folder for a log of this rank alone")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    rank, attempt = int(os.environ["RANK"]), arguments.attempt
    if arguments.output is not None:
        _redirect(arguments.output / f"rank-{rank}.log")
    heartbeat = Heartbeat(attempt, rank)
    try:
        _run(RunPaths(root=arguments.run_dir), attempt, heartbeat, by_agent=arguments.meet == "agent")
        write_text(rank_file(attempt, rank, "done"), "")
    except SparkgpuError as error:
        traceback.print_exc()
        write_json(attempt.parent / REFUSED, {"kind": error.kind, "message": str(error)})
    except BaseException as error:
        traceback.print_exc()
        if isinstance(error, NeedsSmallerBatches):
            write_json(attempt.parent / SMALLER, {"micro_rows": error.micro_rows, "note": error.note})
        lines = str(error).strip().splitlines()
        _fail(attempt, rank, f"{type(error).__name__}: {lines[0] if lines else 'no message'}")
    _leave(0)


def _fail(attempt: Path, rank: int, message: str) -> None:
    write_json(rank_file(attempt, rank, "error.json"), {"message": message, "at": time.time()})
    _leave(1)


def _redirect(log: Path) -> None:
    """Send all further output of this process, also that of native libraries, to `log`."""
    with log.open("ab", buffering=0) as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())


def _run(paths: RunPaths, attempt: Path, heartbeat: Heartbeat, *, by_agent: bool) -> None:
    asked = read_trial(attempt.parent)
    spec, lane, config = asked.spec, asked.lane, asked.parameters
    assert isinstance(config, NeuralParameters)
    device = usable_device(lane, int(os.environ["LOCAL_RANK"]))
    torch.set_num_threads(lane.neural_threads)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    watch: StoreWatch | None = None
    if spec.strategy != "single":
        store = _store(attempt, world_size, by_agent=by_agent)
        join(config, device, store, rank, world_size)
        if by_agent:  # on one machine its launcher watches
            store = PrefixStore("watch", store)
            lost = partial(_fail, attempt, rank)
            watch = StoreWatch(store, heartbeat, (rank, world_size), config.rank_timeout_s, lost)
            watch.start()
    strategy = make_strategy(spec.strategy, config, device, lane.device_name)
    strategy.beat = heartbeat.beat
    strategy.slow_work = heartbeat.slow_work
    own = paths.lane(lane.index)
    events = EventWriter(own.events("neural"), own.phases("neural"))
    if not strategy.leads:  # only the leading rank reports for all
        name = f"rank-{rank}"
        events = EventWriter(attempt / f"{name}.events.jsonl", attempt / f"{name}.phases.json")
    record = run_rank(
        Trial(schema=read_schema(paths), run=paths, events=events, scratch=attempt.parent, **dict(asked)),
        strategy,
        # A step of another shape is compiled anew, which takes as long as slow work.
        on_step=heartbeat.beat if config.compile else heartbeat.step,
    )
    if watch is not None:
        watch.stop()
    # The group is not destroyed: that may wait for ranks that have ended, and this process ends now anyway.
    if record is not None:
        write_json(attempt.parent / RECORD, record)


def _store(attempt: Path, world_size: int, *, by_agent: bool) -> Store:
    """Where ranks find each other: through a file of this machine, or at the address that the agent gives."""
    if not by_agent:
        return dist.FileStore(str(attempt / "store"), world_size)  # type: ignore[attr-defined]
    found: tuple[Store, int, int] = next(rendezvous("env://", timeout=timedelta(seconds=_MEETING_S)))
    return found[0]


def _leave(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of native libraries can keep an interpreter alive; all files are closed here.
    os._exit(status)


if __name__ == "__main__":
    main()
