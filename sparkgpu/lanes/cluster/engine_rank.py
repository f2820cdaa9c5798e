"""One rank of an engine on an executor: ``python -m sparkgpu.lanes.cluster.engine_rank``.

A booster that ranks can grow together has one in each slot; any other engine has one rank, and so one
executor. Networks have ranks of their own (`sparkgpu.neural.ranks`).
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from sparkgpu.core.errors import SparkgpuError, described
from sparkgpu.core.host.processes import die_with_parent
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import read_schema
from sparkgpu.lanes.process import end
from sparkgpu.neural.launchers.gang import RECORD, REFUSED, read_trial
from sparkgpu.neural.launchers.heartbeat import Heartbeat, rank_file
from sparkgpu.trials.engine import Platform, Trial, make_engine


def main() -> None:
    """Run one rank. Exit status 1 asks for another attempt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--attempt", type=Path, required=True, help="the folder of all ranks' signs")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--place", type=json.loads, help="where several ranks meet, as JSON")
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    attempt, rank = arguments.attempt, arguments.rank
    Heartbeat(attempt, rank)
    try:
        _run(RunPaths(root=arguments.run_dir), attempt, rank, arguments.place)
        write_text(rank_file(attempt, rank, "done"), "")
    except SparkgpuError as error:
        traceback.print_exc()
        write_json(attempt.parent / REFUSED, described(error))
        end(1)
    except BaseException as error:
        traceback.print_exc()
        failed = {"message": described(error)["message"], "at": time.time()}
        write_json(rank_file(attempt, rank, "error.json"), failed)
        end(1)
    end(0)


def _run(paths: RunPaths, attempt: Path, rank: int, place: dict[str, str | int] | None) -> None:
    asked = read_trial(attempt.parent)
    own = paths.lane(asked.lane.index)
    events = EventWriter(own.events(asked.spec.branch), attempt / "phases.json")
    if rank:  # only the first rank reports for all
        events = EventWriter(attempt / f"rank-{rank}.events.jsonl", attempt / f"rank-{rank}.phases.json")
    trial = Trial(schema=read_schema(paths), run=paths, events=events, scratch=attempt, **dict(asked))
    with ExitStack() as stack:
        platform = Platform()
        if place is not None:
            from sparkgpu.trees.xgboost_ranks import joined

            platform = Platform(ranks=stack.enter_context(joined(place, rank)))
        record = make_engine(asked.spec.engine, platform).run(trial)
    if rank == 0:
        write_json(attempt.parent / RECORD, record)


if __name__ == "__main__":
    main()
