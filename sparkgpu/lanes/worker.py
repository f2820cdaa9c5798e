"""The work of one worker process of a lane, which `sparkgpu.lanes.start` begins and ends.

A lane's two workers run at the same time. The tree worker of the first lane also prepares the table
(`sparkgpu.lanes.table_making`), while H2O starts beside it; all others wait for ``table/schema.json``.
Every error is written to the trial's or the lane's ``error.json``; its traceback goes to the log.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkgpu.core.config import toml
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.parameters import NeuralParameters, TreesParameters
from sparkgpu.core.config.registry.engines import ENGINES, Branch
from sparkgpu.core.errors import DeviceError, described
from sparkgpu.core.host.interpreter import importing
from sparkgpu.core.plan.plan import LanePlan, Plan, prepares_table
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.core.table.source import Source
from sparkgpu.h2o.startup import StartingJvm
from sparkgpu.lanes.process import end, import_for_threads
from sparkgpu.lanes.table_making import TableMaking
from sparkgpu.trials.engine import Engine, Platform, Trial, make_engine
from sparkgpu.trials.loop import TimeShares, run_trials
from sparkgpu.trials.turns import wait_for_network, wait_for_trees
from sparkgpu.trials.two_sizes import run_sizes

if TYPE_CHECKING:
    from ai.h2o.sparkling.H2OContext import H2OContext
    from pyspark.sql import SparkSession

    from sparkgpu.trials.search import Searches

_WAIT_S = 0.05
_GPU_MEMORY = re.compile("out of memory|cudaErrorMemoryAllocation|bad_alloc", re.IGNORECASE)
"""In what XGBoost says if a GPU's memory does not suffice."""


class Work:
    """The state and the work of one worker process; `starting` is its JVM, if that starts already.

    `scratch` must be private to the user (mode 0700): it holds the files of H2O and Spark, and the login.
    """

    def __init__(
        self,
        paths: RunPaths,
        lane: int,
        branch: Branch,
        scratch: Path,
        source: Source | None,
        starting: StartingJvm | None = None,
    ) -> None:
        self.paths = paths
        self.plan = Plan.model_validate(read_json(paths.plan))
        self.config: RunConfig = toml.load(file=paths.config)
        # From the lane's own file: only the lane's machine knows its ports and memory.
        self.lane = LanePlan.model_validate(read_json(paths.lane(lane).lane))
        self.branch: Branch = branch
        self.scratch = scratch
        self.source = source
        self.starting = starting
        self.trials = self.plan.of(lane, branch)
        self.events = EventWriter(paths.lane(lane).events(branch), paths.lane(lane).phases(branch))
        self.failed = False
        self._probed: str | None = None  # why H2O cannot use the GPU; empty if it can
        self.making: TableMaking | None = None
        if prepares_table(paths, lane, branch):
            assert source is not None
            self.making = TableMaking(
                config=self.config, source=source, scratch=scratch, paths=paths, events=self.events,
                error=paths.lane(lane).error(branch),
            )  # fmt: skip

    def run(self) -> None:
        by_spark = self.making is not None and self.plan.prepared_by == "spark"
        if self.making is not None and not by_spark:
            self.making.by_arrow()
        if any(ENGINES.find(spec.engine).needs_h2o for spec in self.trials):
            self._run_with_h2o(by_spark=by_spark)
            return
        if self.making is not None and by_spark:
            with self._spark(h2o=False) as session:
                self.making.by_spark(session)
                self.making.finish()
        self._run_trials(Platform())

    def _run_with_h2o(self, *, by_spark: bool) -> None:
        """In a Spark session with H2O in it."""
        from sparkgpu.h2o.context import stopping
        from sparkgpu.prepare.pyspark_internals import java_of

        with self._spark(h2o=True) as session:
            if self.making is not None and by_spark:
                # Before H2O, since all lanes wait for the table: at the same time both would take longer.
                self.making.by_spark(session)
            try:
                with self.events.phase("starting H2O"):
                    context = self.start_h2o(session)
            except Exception as error:
                self._go_on_without_h2o(error)
                return
            finally:
                if self.making is not None:
                    self.making.finish()
            with stopping(context):
                self._run_trials(Platform(session=session, java=java_of(session)))
                if not self._opens_catalog:
                    # H2O and Spark end with this process: their files are in `scratch`, which goes, too.
                    end(self.status)

    @property
    def _opens_catalog(self) -> bool:
        return self.making is not None and self.source is not None and self.source.needs_catalog

    @property
    def status(self) -> int:
        """The exit status: 0 if all trials are done, 5 if one failed."""
        return 5 if self.failed else 0

    def _go_on_without_h2o(self, error: Exception) -> None:
        """H2O did not start: its trials fail, and those of other engines run. Raises if there are none."""
        others = tuple(spec for spec in self.trials if not ENGINES.find(spec.engine).needs_h2o)
        if not others:
            raise error
        traceback.print_exc()
        for spec in self.trials:
            if spec not in others:
                write_json(self.paths.trial(spec.name).error, described(error))
                self.events.trial_failed(spec.name, described(error)["message"])
        self.trials = others
        self._run_trials(Platform())
        self.failed = True

    def _run_trials(self, platform: Platform) -> None:
        # Made first, so that an engine imports its learner while another worker prepares the table.
        engines: dict[str, Engine[Any]] = {}
        for name in dict.fromkeys(spec.engine for spec in self.trials):
            with (
                suppress(DeviceError),
                importing(),
            ):  # one that is not there fails its own trials, below
                engines[name] = make_engine(name, platform)
        schema = self._wait_for_table()
        resolved = self.plan.resolved(self.config, TableSize.of(schema))
        shares = TimeShares(self.trials, self.plan.training_ends(schema))

        def run_trial(spec: TrialSpec) -> FitRecord:
            until = shares.begin(spec)
            if spec.settings:
                record = searches().run(spec, resolved.of(spec.model), until)
            else:
                record = run_setting(spec, resolved.of(spec.model), until, None)
            shares.end(spec)
            return record

        @cache
        def searches() -> Searches:
            from sparkgpu.trials.search import Searches  # loads Optuna

            return Searches(self.trials, self.paths, schema, run_setting)

        def run_setting(
            spec: TrialSpec,
            parameters: TreesParameters | NeuralParameters,
            until: float | None,
            watch: Callable[[int, float], None] | None,
        ) -> FitRecord:
            spec, note = self._after_probe(spec)
            if spec.engine not in engines:
                engines[spec.engine] = make_engine(spec.engine, platform)
            if self.branch == "neural" and self.lane.in_turn:
                wait_for_trees(self.paths, spec.gang, self.events)
            trial: Trial[Any] = Trial(
                spec=spec,
                parameters=parameters,
                schema=schema,
                run=self.paths,
                lane=self.lane,
                events=self.events,
                scratch=self.scratch,
                cores_are_free=self._other_branch_ended,
                beside_bytes=self.plan.bytes_of_trees(spec, resolved, schema),
                may_wait=self.plan.master is None,
                until=until,
                watch=watch,
            )
            record = self._run_with_room(engines[spec.engine], trial)
            return record.model_copy(update={"notes": (*note, *record.notes)}) if note else record

        calibrates = self.config.calibrates(schema.task)
        self.failed = not run_trials(
            self.plan, self.trials, self.paths, self.events, run_trial, shares.fits, calibrates=calibrates
        )

    def _run_with_room(self, engine: Engine[Any], trial: Trial[Any]) -> FitRecord:
        """Run a trial; trees that found too little memory beside the network on a GPU grow again after it."""
        try:
            return run_sizes(engine, trial)
        except Exception as error:
            lacks_memory = (
                self.branch == "trees" and trial.parameters.on_gpu and _GPU_MEMORY.search(str(error))
            )
            if not (lacks_memory and trial.may_wait):
                raise
            traceback.print_exc()
            if not wait_for_network(self.paths, self.lane.index, self.events):
                raise
        record = run_sizes(engine, trial)
        note = "grown after the network: the GPU's memory did not hold both at once"
        return record.model_copy(update={"notes": (note, *record.notes)})

    def _after_probe(self, spec: TrialSpec) -> tuple[TrialSpec, tuple[str, ...]]:
        """The trial with the engine that trains on this lane's GPU, and a note if it is not the first choice.

        Raises `DeviceError` if there is none.
        """
        if not spec.probed:
            return spec, ()
        if self._probed is None:
            from sparkgpu.h2o.probe import why_not_on_gpu

            with self.events.phase("probing H2O on the GPU"):
                self._probed = why_not_on_gpu() or ""
        if not self._probed:
            return spec, ()
        what = f"{spec.engine} does not train on {self.lane.device_name}: {self._probed.rstrip('.')}"
        if spec.otherwise is None:
            raise DeviceError(
                f"{what}. Run `pip install 'sparkgpu[xgboost]'`, whose engine then takes its place, or set "
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
            import_for_threads(h2o=h2o)
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
                        starting=self.starting,
                    )
                )
            yield session

    def start_h2o(self, session: SparkSession) -> H2OContext:
        """Start H2O in the session and connect this process's client."""
        from sparkgpu.h2o.context import start_h2o

        return start_h2o(
            session,
            name=f"{self.scratch.parent.name}-{self.lane.index}",
            scratch=self.scratch,
            port_base=self.lane.port_base,
            threads=self.lane.threads,
        )

    def _wait_for_table(self) -> TableSchema:
        """Wait for the prepared table; the parent ends this process if the preparation fails."""
        if not self.paths.schema.exists():
            with self.events.phase("waiting for the table"):
                while not self.paths.schema.exists():
                    time.sleep(_WAIT_S)
        return read_schema(self.paths)
