"""The driver of a run's Spark application: ``python -m sparkgpu.lanes.cluster.driver --run DIR ...``.

It prepares the table on the executors and trains the trees on an H2O cloud across them and, at the same time,
the networks as gangs of ranks in their slots. If an executor is lost, everything in executors is lost, too:
this process then ends with that reason, and the parent starts another driver, which keeps finished work.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkgpu.core.config import toml
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.registry.engines import BRANCHES, ENGINES, Branch
from sparkgpu.core.errors import ExecutorLostError
from sparkgpu.core.plan.defaults import Resolved
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
from sparkgpu.lanes.cluster.progress_events import ExecutorWork, MadeProgress, signs_of_life
from sparkgpu.lanes.process import begin, end, give_up, import_for_threads, in_background
from sparkgpu.prepare.prepare import prepare_in_session
from sparkgpu.trials.engine import Platform, Trial, make_engine
from sparkgpu.trials.loop import run_trials
from sparkgpu.trials.two_sizes import run_sizes

if TYPE_CHECKING:
    from ai.h2o.sparkling.H2OContext import H2OContext
    from pyspark.sql import SparkSession

_LOOK_EVERY_S = 0.5


@dataclass(kw_only=True)
class _Application:
    """The work of the driver; `progress` are the sources of signs of life."""

    session: SparkSession
    paths: RunPaths
    config: RunConfig
    source: Source
    scratch: Path
    shared: Path
    events: Mapping[Branch, EventWriter]
    progress: list[MadeProgress]

    def run(self, plan: Plan, executors: tuple[Executor, ...]) -> bool:
        """Prepare the table if there is none, then train the unfinished trials; whether all are done."""
        if self.config.cluster.lanes == "cloud":
            return self._run_cloud(plan, executors)
        self._table()
        return run_lanes(self.session, self.paths, [found.host for found in executors])

    def _run_cloud(self, plan: Plan, executors: tuple[Executor, ...]) -> bool:
        trials = {branch: plan.of(0, branch) for branch in BRANCHES}
        trees_left = any(not self.paths.trial(spec.name).done.exists() for spec in trials["trees"])
        # Made in this thread, which owns the session.
        distributor = ranks.make_distributor(plan.num_ranks, use_gpu=plan.lanes[0].device.startswith("cuda"))
        # H2O starts through Spark tasks, for which the ranks would leave no slot. So it starts before them,
        # while the table is prepared.
        by_h2o = any(ENGINES.find(spec.engine).needs_h2o for spec in trials["trees"])
        cloud = in_background(lambda: self._start_cloud(executors)) if trees_left and by_h2o else None
        schema = self._table()
        resolved = plan.resolved(self.config, TableSize.of(schema))
        self.session.conf.set("spark.sql.shuffle.partitions", str(2 * plan.num_ranks))
        context = None
        if cloud:
            with self.events["trees"].phase("starting H2O"):
                context = cloud.result()
        launch = partial(ranks.train_in_slots, distributor)
        networks = in_background(lambda: self._run_trials("neural", plan, schema, resolved, launch))
        trees_done = True
        if trees_left:
            with ExitStack() as stack:
                if context is not None:
                    from sparkgpu.h2o.context import stopping

                    stack.enter_context(stopping(context))
                workers = sum(executor.slots for executor in executors)
                platform = Platform(session=self.session, on_cluster=True, num_workers=workers)
                engines = {
                    name: make_engine(name, platform)
                    for name in dict.fromkeys(spec.engine for spec in trials["trees"])
                }
                for engine in engines.values():
                    self.progress.append(engine.made_progress)
                    stack.callback(self.progress.remove, engine.made_progress)
                trees_done = self._run_trials(
                    "trees", plan, schema, resolved,
                    lambda trial: run_sizes(engines[trial.spec.engine], trial),
                )  # fmt: skip
        return networks.result() and trees_done

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

    def _run_trials(
        self,
        branch: Branch,
        plan: Plan,
        schema: TableSchema,
        resolved: Resolved,
        run: Callable[[Trial[Any]], FitRecord],
    ) -> bool:
        def run_unless_lost(spec: TrialSpec) -> FitRecord:
            trial: Trial[Any] = Trial(
                spec=spec,
                parameters=resolved.of_trial(spec),
                schema=schema,
                run=self.paths,
                lane=plan.lanes[0],
                events=self.events[branch],
                scratch=self.shared,
                beside_bytes=plan.bytes_of_trees(spec, resolved, schema),
            )
            try:
                return run(trial)
            except Exception:
                # This may be the first sign of a lost executor; in that case the watcher ends this process.
                time.sleep(ranks.RESTART_S)
                raise

        return run_trials(
            plan, plan.of(0, branch), self.paths, self.events[branch], run_unless_lost,
            calibrates=self.config.calibrates(schema.task),
        )  # fmt: skip


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
                        spark=True, h2o=ENGINES.find(config.trees.engine_name).needs_h2o
                    ),
                )
            )
            executors = await_executors(
                session, wanted=settings["executors"], settled_s=settings.get("settled_s")
            )
            check_executors(session, executors, paths.root)
        plan = make_cluster_plan(config, executors, master=settings["master"])
        write_json(paths.plan, plan)
        if arguments.plan_only:
            return 0
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(session, executors, ended, errors), daemon=True)
        watcher.start()
        application = _Application(
            session=session, paths=paths, config=config, source=arguments.source, scratch=arguments.scratch,
            shared=arguments.shared, events=events, progress=[ExecutorWork(session).made_progress],
        )  # fmt: skip
        try:
            with signs_of_life(events.values(), application.progress):
                are_done = application.run(plan, executors)
        finally:
            ended.set()
        watcher.join()
        return 0 if are_done else 5


if __name__ == "__main__":
    main()
