"""One worker process of a lane: ``python -m sparkgpu.lanes.worker --run DIR --lane I --branch trees|neural``.

A lane's two workers run at the same time. The tree worker of the first lane also prepares the table
(`sparkgpu.lanes.table_making`), while H2O starts beside it; all others wait for ``table/schema.json``.
Every error is written to the trial's or the lane's ``error.json``; its traceback goes to the log.
"""

from __future__ import annotations

import argparse
import logging
import re
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkgpu.core.config import toml
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.parameters import Parameters
from sparkgpu.core.config.registry.engines import ENGINES, Branch
from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.cuda_packages import xgboost_with_cuda
from sparkgpu.core.host.interpreter import importing
from sparkgpu.core.plan.defaults import Resolved
from sparkgpu.core.plan.plan import LanePlan, Plan, prepares_table
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import read_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.core.table.source import Source
from sparkgpu.lanes.process import begin, end, give_up, import_for_threads
from sparkgpu.lanes.table_making import TableMaking
from sparkgpu.trials.engine import Engine, Platform, Trial, Watch, make_engine
from sparkgpu.trials.loop import TimedTrials, run_trials
from sparkgpu.trials.turns import wait_for_network, wait_for_trees
from sparkgpu.trials.two_sizes import run_sizes

if TYPE_CHECKING:
    from ai.h2o.sparkling.H2OContext import H2OContext
    from pyspark.sql import SparkSession

_WAIT_S = 0.05
_LOGGED = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_GPU_MEMORY = re.compile("out of memory|cudaErrorMemoryAllocation|bad_alloc", re.IGNORECASE)
"""In what XGBoost says if a GPU's memory does not suffice."""


@dataclass(frozen=True, kw_only=True)
class _Table:
    """The table of a trial, and the parameters that follow from it."""

    paths: RunPaths
    schema: TableSchema
    resolved: Resolved


class Work:
    """The state and the work of one worker process.

    `scratch` must be private to the user (mode 0700): it holds the files of H2O and Spark, and the login.
    """

    def __init__(
        self,
        paths: RunPaths,
        lane: int,
        branch: Branch,
        scratch: Path,
        source: Source | None,
    ) -> None:
        self.paths = paths
        self.plan = Plan.model_validate(read_json(paths.plan))
        self.config: RunConfig = toml.load(file=paths.config)
        logging.basicConfig(level=self.config.log_level.upper(), format=_LOGGED)
        # From the lane's own file: only the lane's machine knows its ports and memory.
        self.lane = LanePlan.model_validate(read_json(paths.lane(lane).lane))
        self.branch: Branch = branch
        self.scratch = scratch
        self.source = source
        self.trials = self.plan.of(lane, branch)
        self.events = EventWriter(paths.lane(lane).events(branch), paths.lane(lane).phases(branch))
        self._h2o_error: Exception | None = None  # why H2O did not start
        self._probed: str | None = None  # why H2O cannot use the GPU; empty if it can
        self.making: TableMaking | None = None
        if prepares_table(paths, lane, branch):
            assert source is not None
            self.making = TableMaking(
                config=self.config, source=source, scratch=scratch, paths=paths, events=self.events,
                error=paths.lane(lane).error(branch),
            )  # fmt: skip

    def run(self) -> int:
        """Returns the exit status: 0 if all trials are done, 5 if one failed."""
        by_spark = self.making is not None and self.plan.prepared_by == "spark"
        if self.making is not None and not by_spark:
            self.making.by_arrow()
        h2o = any(map(_needs_h2o, self.trials))
        if not (h2o or by_spark):
            return self._run_trials(Platform())
        with self._spark(h2o=h2o) as session:
            if self.config.log_level != "warning":  # as its log4j2.properties has it
                session.sparkContext.setLogLevel(self.config.log_level.upper())
            if self.making is not None and by_spark:
                # Before H2O, since all lanes wait for the table: at the same time both would take longer.
                self.making.by_spark(session)
            try:
                context = self._start_h2o(session) if h2o else None
            except Exception as error:
                if all(map(_needs_h2o, self.trials)):
                    raise
                traceback.print_exc()
                self._h2o_error, context = error, None  # its trials fail, and those of other engines run
            finally:
                if self.making is not None:
                    self.making.finish()
            if context is not None and (status := self._run_with_h2o(session, context)) is not None:
                return status
        return self._run_trials(Platform())

    def _start_h2o(self, session: SparkSession) -> H2OContext:
        from sparkgpu.h2o.context import start_h2o

        with self.events.phase("starting H2O"):
            return start_h2o(
                session,
                name=f"{self.scratch.parent.name}-{self.lane.index}",
                scratch=self.scratch,
                port_base=self.lane.port_base,
                threads=self.lane.threads,
            )

    def _run_with_h2o(self, session: SparkSession, context: H2OContext) -> int | None:
        """The exit status; None if H2O cannot train on the GPU and no trial needs it otherwise.

        Its JVM then ends before another engine trains: it would keep the GPU open, which some share with
        nobody.
        """
        from sparkgpu.h2o.context import stopping
        from sparkgpu.prepare.pyspark_internals import java_of

        with stopping(context):
            probed = [spec for spec in self.trials if spec.probed]
            if probed and self._fails_on_gpu() and len(probed) == sum(map(_needs_h2o, self.trials)):
                return None
            status = self._run_trials(Platform(session=session, java=java_of(session)))
            if not self._opens_catalog:
                # H2O and Spark end with this process: their files are in `scratch`, which goes, too.
                end(status)
        return status

    def _fails_on_gpu(self) -> str:
        """Why H2O does not train on this lane's GPU; empty if it does."""
        if self._probed is None:
            from sparkgpu.h2o.probe import why_not_on_gpu

            self._probed = why_not_on_gpu(self.events) or ""
        return self._probed

    @property
    def _opens_catalog(self) -> bool:
        return self.making is not None and self.source is not None and self.source.needs_catalog

    def _run_trials(self, platform: Platform) -> int:
        # Made first, so that an engine imports its learner while another worker prepares the table.
        engines: dict[str, Engine[Any]] = {}
        usable = [spec for spec in self.trials if not (self._h2o_error and _needs_h2o(spec))]
        names = (spec.otherwise if spec.probed and self._probed else spec.engine for spec in usable)
        for name in filter(None, dict.fromkeys(names)):
            with (
                suppress(DeviceError),
                importing(),
            ):  # one that is not there fails its own trials, below
                engines[name] = make_engine(name, platform)
        schema = self._wait_for_table()

        @cache
        def table_of(target: str | None) -> _Table:
            paths = self.paths if target is None else self.paths.target(target)
            own = read_schema(paths)
            size = TableSize.of(own)
            if own.targets:  # defaults for all together are those for the first
                first = TableSize.of(read_schema(paths.target(own.targets[0])))
                size = replace(first, train_rows=size.train_rows)
            return _Table(paths=paths, schema=own, resolved=self.plan.resolved(self.config, size))

        def train(
            spec: TrialSpec,
            parameters: Parameters,
            until: float | None,
            watch: Watch | None,
        ) -> FitRecord:
            if self._h2o_error and _needs_h2o(spec):
                raise self._h2o_error
            spec, note = self._after_probe(spec)
            if spec.engine not in engines:
                engines[spec.engine] = make_engine(spec.engine, platform)
            if self.branch == "neural" and self.lane.in_turn:
                wait_for_trees(self.paths, spec.gang, self.events)
            table = table_of(spec.target)
            grown = [table_of(folder) for folder in schema.targets] or [table]
            trial: Trial[Any] = Trial(
                spec=spec,
                parameters=parameters,
                schema=table.schema,
                run=table.paths,
                lane=self.lane,
                events=self.events,
                scratch=self.scratch,
                cores_are_free=self._other_branch_ended,
                beside_bytes=max(self.plan.bytes_of_trees(spec, one.resolved, one.schema) for one in grown),
                may_wait=self.plan.master is None,
                until=until,
                watch=watch,
            )
            record = self._run_with_room(engines[spec.engine], trial)
            return record.model_copy(update={"notes": (*note, *record.notes)}) if note else record

        timed = TimedTrials(
            self.trials, self.paths, schema, lambda spec: table_of(spec.target).resolved.of_trial(spec),
            self.plan.training_ends(schema), train,
        )  # fmt: skip
        are_done = run_trials(
            self.plan, self.trials, self.paths, self.events, timed.run, timed.fits,
            calibrates=self.config.calibrates,
        )  # fmt: skip
        return 0 if are_done else 5

    def _run_with_room(self, engine: Engine[Any], trial: Trial[Any]) -> FitRecord:
        """Run a trial; trees that found too little memory beside the network on a GPU grow again after it."""
        try:
            return run_sizes(engine.run, trial)
        except Exception as error:
            lacks_memory = (
                self.branch == "trees" and trial.parameters.on_gpu and _GPU_MEMORY.search(str(error))
            )
            if not (lacks_memory and trial.may_wait):
                raise
            traceback.print_exc()
            if not wait_for_network(self.paths, self.lane.index, self.events):
                raise
        record = run_sizes(engine.run, trial)
        note = "grown after the network: the GPU's memory did not hold both at once"
        return record.model_copy(update={"notes": (note, *record.notes)})

    def _after_probe(self, spec: TrialSpec) -> tuple[TrialSpec, tuple[str, ...]]:
        """The trial with the engine that trains on this lane's GPU, and a note if it is not the first choice.

        Raises `DeviceError` if there is none.
        """
        if not spec.probed or not (reason := self._fails_on_gpu()):
            return spec, ()
        what = f"{spec.engine} does not train on {self.lane.device_name}: {reason.rstrip('.')}"
        if spec.otherwise is None:
            raise DeviceError(
                f"{what}. Run `{xgboost_with_cuda()}`, whose engine then takes its place, or set "
                'trees.tree_method = "hist" to train trees on the CPU.'
            )
        return spec.model_copy(update={"engine": spec.otherwise}), (f"trained by {spec.otherwise}: {what}",)

    def _other_branch_ended(self) -> bool:
        other: Branch = "trees" if self.branch == "neural" else "neural"
        trials = (self.paths.trial(spec.name) for spec in self.plan.of(self.lane.index, other))
        return all(trial.done.exists() or trial.error.exists() for trial in trials)

    @contextmanager
    def _spark(self, *, h2o: bool) -> Iterator[SparkSession]:
        """A session; while it starts, this process imports, and the source of the table is read."""
        by_spark = self.plan.prepared_by == "spark"

        def meanwhile() -> None:
            import_for_threads(spark=True, h2o=h2o)
            if self.making is not None and by_spark:
                self.making.find_out_beside()

        from sparkgpu.h2o.session import spark_session

        with ExitStack() as stack:
            with self.events.phase("starting Spark"):
                session = stack.enter_context(
                    spark_session(
                        name=f"sparkgpu lane {self.lane.index}",
                        threads=self.lane.threads,
                        heap_bytes=self.lane.heap_bytes,
                        scratch=self.scratch,
                        port_base=self.lane.port_base,
                        catalog=self._opens_catalog,
                        meanwhile=meanwhile,
                    )
                )
            yield session

    def _wait_for_table(self) -> TableSchema:
        """The parent ends this process if the preparation fails."""
        if not self.paths.schema.exists():
            with self.events.phase("waiting for the table"):
                while not self.paths.schema.exists():
                    time.sleep(_WAIT_S)
        return read_schema(self.paths)


def _needs_h2o(spec: TrialSpec) -> bool:
    return ENGINES.find(spec.engine).needs_h2o


def main() -> None:
    """Run one worker. Exit status 0: all its trials are done; 5: one failed; 1: a defect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--lane", type=int, required=True)
    parser.add_argument("--branch", choices=("trees", "neural"), required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--source", type=Source.model_validate_json, help="the table's, as JSON")
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    begin(options.parent)
    paths = RunPaths(root=options.run)
    try:
        status = Work(paths, options.lane, options.branch, options.scratch, options.source).run()
    except BaseException as error:
        give_up(error, [paths.lane(options.lane).error(options.branch)])
    end(status)


if __name__ == "__main__":
    main()
