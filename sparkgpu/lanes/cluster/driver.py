"""The driver of a run's Spark application: ``python -m sparkgpu.lanes.cluster.driver --run DIR ...``.

It prepares the table on the executors and trains one model after the other as ranks in their slots, or trees
in a cloud of H2O's nodes across them. If an executor is lost, everything in executors is lost, too:
this process then ends with that reason, and the parent starts another driver, which keeps finished work.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkgpu.core.config import toml
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.parameters import Parameters
from sparkgpu.core.config.registry.engines import BRANCHES, ENGINES, Branch
from sparkgpu.core.errors import ExecutorLostError
from sparkgpu.core.plan.executors import Executor, make_cluster_plan
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.demo_table import resolve_demo
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.core.table.source import Source
from sparkgpu.core.words import counted
from sparkgpu.lanes.cluster import ranks
from sparkgpu.lanes.cluster.executor_lanes import run_lanes
from sparkgpu.lanes.cluster.progress_events import ExecutorWork, signs_of_life
from sparkgpu.lanes.process import begin, end, give_up, import_for_threads, in_background
from sparkgpu.prepare.prepare import prepare_in_session
from sparkgpu.trials.engine import Engine, Platform, Trial, Watch, make_engine
from sparkgpu.trials.loop import TimedTrials, run_trials
from sparkgpu.trials.two_sizes import run_sizes

if TYPE_CHECKING:
    from ai.h2o.sparkling.H2OContext import H2OContext
    from pyspark.sql import SparkSession

_LOOK_EVERY_S = 0.5


@dataclass(kw_only=True)
class _Application:
    """The work of the driver."""

    session: SparkSession
    paths: RunPaths
    config: RunConfig
    source: Source
    scratch: Path
    shared: Path
    events: Mapping[Branch, EventWriter]

    def run(self, plan: Plan, executors: tuple[Executor, ...]) -> bool:
        """Prepare the table if there is none, then train the unfinished trials; whether all are done."""
        if self.config.cluster.lanes == "cloud":
            return self._run_cloud(plan, executors)
        self._table()
        return run_lanes(self.session, self.paths, [found.host for found in executors])

    def _run_cloud(self, plan: Plan, executors: tuple[Executor, ...]) -> bool:
        left = [spec for spec in plan.trials if not self.paths.trial(spec.name).done.exists()]
        # Made in this thread, which owns the session.
        distributor = ranks.make_distributor(plan.num_ranks, use_gpu=plan.lanes[0].device.startswith("cuda"))
        by_h2o = next((spec.engine for spec in left if ENGINES.find(spec.engine).needs_h2o), None)
        cloud = in_background(lambda: self._start_cloud(executors)) if by_h2o else None
        schema = self._table()
        resolved = plan.resolved(self.config, TableSize.of(schema))
        self.session.conf.set("spark.sql.shuffle.partitions", str(2 * plan.num_ranks))
        slots = sum(executor.slots for executor in executors)

        def train(
            spec: TrialSpec, parameters: Parameters, until: float | None, watch: Watch | None
        ) -> FitRecord:
            trial: Trial[Any] = Trial(
                spec=spec, parameters=parameters, schema=schema, run=self.paths, lane=plan.lanes[0],
                events=self.events[spec.branch], scratch=self.shared, until=until, watch=watch,
            )  # fmt: skip
            entry = ENGINES.find(spec.engine)
            try:
                if spec.engine == "torch":
                    return ranks.train_in_slots(distributor, trial)
                if h2o is not None and entry.needs_h2o:
                    return run_sizes(h2o.run, trial)
                count = ranks.num_tree_ranks(slots, schema) if entry.spreads else 1
                return run_sizes(partial(ranks.train_by_engine, self.session, count), trial)
            except Exception:
                # This may be the first sign of a lost executor; in that case the watcher ends this process.
                time.sleep(ranks.RESTART_S)
                raise

        with ExitStack() as stack:
            h2o: Engine[Any] | None = None
            if cloud and by_h2o:
                from sparkgpu.h2o.context import stopping

                with self.events["trees"].phase("starting H2O"):
                    stack.enter_context(stopping(cloud.result()))
                h2o = make_engine(by_h2o, Platform(session=self.session, on_cluster=True))
            timed = TimedTrials(
                plan.trials, self.paths, schema, resolved.of_trial, plan.training_ends(schema), train
            )
            done = [
                run_trials(
                    plan, [spec], self.paths, self.events[spec.branch], timed.run, timed.fits,
                    calibrates=self.config.calibrates,
                )
                for spec in plan.trials
            ]  # fmt: skip
        return all(done)

    def _table(self) -> TableSchema:
        if self.paths.schema.exists():
            return read_schema(self.paths)
        return prepare_in_session(
            self.session,
            resolve_demo(self.source, self.shared),
            config=self.config,
            scratch=self.shared,
            paths=self.paths,
            events=self.events["trees"],
        )

    def _start_cloud(self, executors: tuple[Executor, ...]) -> H2OContext:
        from sparkgpu.h2o.context import start_cloud

        return start_cloud(
            self.session,
            name=self.scratch.parent.name,
            scratch=self.scratch,
            num_nodes=len(executors),
            threads=min(executor.cores for executor in executors),
            loopback=all(executor.host == "127.0.0.1" for executor in executors),
        )


def _watch(
    session: SparkSession, executors: tuple[Executor, ...], ended: threading.Event, errors: list[Path]
) -> None:
    """End this process when an executor is lost: the H2O cloud would hang, and Spark may hang, too."""
    from sparkgpu.lanes.cluster.session import executors_of

    known = {executor.id: executor for executor in executors}
    while not ended.wait(_LOOK_EVERY_S):
        if lost := known.keys() - {executor.id for executor in executors_of(session)}:
            first, count = known[min(lost)], counted(len(known), "executor")
            reason = f"executor {first.id} on {first.host} was lost, one of {count}"
            give_up(ExecutorLostError(reason), errors)


def main() -> None:
    """Run the application. Exit status 0: all its trials are done; 5: one failed; 1: a defect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--settings", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--source", type=Source.model_validate_json, required=True)
    parser.add_argument("--began", type=float, required=True, help="in seconds since the epoch")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--plan-only", action="store_true")
    arguments = parser.parse_args()
    begin(arguments.parent)
    paths = RunPaths(root=arguments.run)
    errors = [paths.lane(0).error(branch) for branch in BRANCHES]  # both fail with the driver
    try:
        status = _run(arguments, paths, errors)
    except BaseException as error:
        give_up(error, errors)
    end(status)


def _run(arguments: argparse.Namespace, paths: RunPaths, errors: list[Path]) -> int:
    from sparkgpu.lanes.cluster.session import await_executors, check_executors, cluster_session

    config = toml.load(file=arguments.config)
    settings = read_json(arguments.settings)
    lane = paths.lane(0)
    events = {branch: EventWriter(lane.events(branch), lane.phases(branch)) for branch in BRANCHES}
    with ExitStack() as stack:
        with events["trees"].phase("starting Spark"):
            session = stack.enter_context(
                cluster_session(
                    name=f"sparkgpu {paths.root.name}",
                    master=settings["master"],
                    spark=settings["spark"],
                    scratch=arguments.scratch,
                    meanwhile=lambda: import_for_threads(
                        spark=True,
                        h2o=any(
                            ENGINES.find(trees.engine_name).needs_h2o
                            for trees in config.trees_by_name.values()
                        ),
                    ),
                )
            )
            executors = await_executors(
                session, wanted=settings["executors"], settled_s=settings.get("settled_s")
            )
            check_executors(session, executors, paths.root)
        plan = make_cluster_plan(config, executors, master=settings["master"], began=arguments.began)
        write_json(paths.plan, plan)
        if arguments.plan_only:
            return 0
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(session, executors, ended, errors), daemon=True)
        watcher.start()
        application = _Application(
            session=session, paths=paths, config=config, source=arguments.source, scratch=arguments.scratch,
            shared=arguments.shared, events=events,
        )  # fmt: skip
        try:
            with signs_of_life(events.values(), ExecutorWork(session)):
                are_done = application.run(plan, executors)
        finally:
            ended.set()
        watcher.join()
        return 0 if are_done else 5


if __name__ == "__main__":
    main()
