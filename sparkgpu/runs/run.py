"""One run from its configuration to its report: plan, lanes, scores, report; and its exit code.

The parent process loads no Spark, no H2O and no torch. So it survives every failure in the lanes, and always
scores and reports the finished work.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.errors import EXIT_DONE, ConfigError, DataError, DeviceError, NoticeToStop, TrialError
from sparkgpu.core.host.devices import Machine, choose_devices, find_machine
from sparkgpu.core.host.monitor import Monitor
from sparkgpu.core.host.rank_command import launcher_words, network_environment
from sparkgpu.core.host.reservations import reserved_ports, scratch_folder
from sparkgpu.core.host.watchdog import watch_self
from sparkgpu.core.plan.bagging import bagged
from sparkgpu.core.plan.executors import with_engine_of_cloud
from sparkgpu.core.plan.make_plan import make_plan
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.rundir.advice import AdviceRecord
from sparkgpu.core.rundir.checks import HOW_TO
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.metrics_json import Results, read_results, write_results
from sparkgpu.core.rundir.paths import RunPaths, has_table
from sparkgpu.core.rundir.targets import TargetEntry, TargetIndex
from sparkgpu.core.table.demo import DEMO, DEMO_SOURCE, with_demo_target
from sparkgpu.core.table.dialect import Dialect
from sparkgpu.core.table.schema import read_schema
from sparkgpu.core.table.source import Source, find_source, parquet_size
from sparkgpu.core.words import listed
from sparkgpu.h2o.proven import is_proven
from sparkgpu.lanes.cluster.driver_supervisor import DriverSupervisor, supervised_driver
from sparkgpu.lanes.cluster.settings import ClusterSettings, cluster_settings
from sparkgpu.lanes.worker_supervisor import WorkerSupervisor, supervised_workers
from sparkgpu.prepare.held_out import check_files, check_splits_of
from sparkgpu.prepare.rules import check_groups
from sparkgpu.present.terminal.display import Display
from sparkgpu.runs.background import import_for_the_end, save_networks
from sparkgpu.runs.dry_run import check_columns
from sparkgpu.runs.evaluate import evaluate  # its numpy sets a variable, so it comes before any thread
from sparkgpu.runs.finish import Trained, finish
from sparkgpu.runs.folder import for_cpu, run_folder, stopping
from sparkgpu.runs.provenance import check_engines, check_jvm, engine_with_cuda
from sparkgpu.runs.reporting import make_report
from sparkgpu.runs.targets import parts_of
from sparkgpu.score.metrics import check_known


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """A finished run: its exit code, its folder, its plan, and what it found (None after a dry run).

    Of several targets, `targets` are the run directories of each, and nothing else is found.
    """

    exit_code: int
    paths: RunPaths
    plan: Plan
    results: Results | None
    targets: Mapping[str, RunPaths] = field(default_factory=dict)


def run(
    config: RunConfig,
    display: Display,
    *,
    out: Path | None = None,
    dry_run: bool = False,
    resume: bool = False,
    title: str | None = None,
    advice: AdviceRecord | str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> RunOutcome:
    """Carry out one run or, with `resume`, the rest of the run in `out`.

    `title` names a source that is not one of the user's files; `advice` was predicted of this run, and stays
    in its folder, or says why nothing was.

    Raises a `SparkgpuError` if nothing could be trained. A refused table leaves no folder.
    """
    started, began = time.time(), time.monotonic()
    check_engines(config)
    if config.metric is not None:
        check_known(config.metric)
    resumes_table = bool(resume and out and has_table(RunPaths(root=out)))
    if resumes_table and out:
        # A damaged one is refused now, not by its workers.
        check_groups(read_schema(RunPaths(root=out)), config.groups)
    found, source = _found(config, title, has_table=resumes_table)
    reasons: Mapping[str, str] = {}
    if source != DEMO_SOURCE and not resume:  # a resumed run says all of it in its run.toml
        from sparkgpu.prepare.to_parquet import rows_up_to

        found, reasons = bagged(found, partial(rows_up_to, source=source))
    settings = cluster_settings(found.cluster, environ)
    if settings is not None and found.data.folders:
        raise ConfigError("target: a run on a Spark cluster takes one. Name one of them.")
    if settings is not None:
        check_jvm(f"a run on {settings.master}", environ)
        found, engine = with_engine_of_cloud(found)
        reasons = {**reasons, **engine}
    asked = _Asked(
        config=found, source=source, machine=find_machine(), display=display, out=out, environ=environ,
        started=started, began=began, dry_run=dry_run, resume=resume, advice=advice, reasons=reasons,
    )  # fmt: skip
    if dry_run and not resume:
        check_columns(found, source, display)
    return _run_here(asked) if settings is None else _run_on_cluster(asked, settings)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """One run as it was asked for; `started` is in seconds since the epoch, `began` by `time.monotonic`."""

    config: RunConfig
    source: Source
    machine: Machine
    display: Display
    out: Path | None
    environ: Mapping[str, str]
    started: float
    began: float
    dry_run: bool
    resume: bool
    advice: AdviceRecord | str | None
    reasons: Mapping[str, str]

    @contextmanager
    def folder(self) -> Iterator[RunPaths]:
        with run_folder(
            self.config,
            self.out,
            self.source,
            self.started,
            self.machine,
            resume=self.resume,
            warn=self.display.warning,
        ) as paths:
            if isinstance(self.advice, AdviceRecord):
                write_json(paths.advice, self.advice)
            yield paths

    def known(self, plan: Plan) -> Plan:
        """The plan with all reasons; the preset of a resumed run stands in its ``run.toml``."""
        before = {"preset": f"{plan.preset}, as the run began"} if self.resume else {}
        return plan.model_copy(update={"reasons": {**plan.reasons, **self.reasons, **before}})

    def show(self, plan: Plan) -> None:
        self.display.plan(plan, self.source.name, listed(self.config.data.targets) or None)

    def finished(self, paths: RunPaths, plan: Plan, trained: Sequence[Trained]) -> RunOutcome:
        """Write and show the results, then the report, and say how the run ended."""
        wall_s = time.monotonic() - self.began
        with watch_self(self.config.hang_after_s or math.inf, paths.hang_log):
            if isinstance(self.advice, str):
                trained = [replace(one, found=one.found.with_caveat(self.advice)) for one in trained]
            for one in trained:
                if one.part.folder is not None:
                    shutil.copyfile(paths.telemetry, one.part.paths.telemetry)
                results = finish(one, self.started, wall_s, self.machine)
                self.display.finish(results, one.part.paths)
            targets = {one.part.folder: one.part.paths for one in trained if one.part.folder is not None}
            if targets:
                entries = [TargetEntry.of(name, read_results(own)) for name, own in targets.items()]
                write_json(paths.targets_index, TargetIndex(targets=tuple(entries)))
            try:
                each = [self._report(one.part.paths) for one in trained]
                if targets:
                    self.display.report(make_report(paths, full=False)[0], ())
            finally:
                paths.config.stat()  # raises if somebody removed the folder
        failed = TrialError.exit_code if any(one.part.failed for one in trained) else EXIT_DONE
        for results in each:
            for check in results.checks:
                if check.status != "passed" and check.name in self.config.report.fail_on:
                    what = f"{check.name} {check.status}: {check.evidence.removesuffix('.')}"
                    self.display.error(f"report.fail_on: {what}. {HOW_TO}#{check.page} says what to do")
                    failed = failed or DataError.exit_code
        found = None if targets else each[0]
        return RunOutcome(exit_code=failed, paths=paths, plan=plan, results=found, targets=targets)

    def _report(self, paths: RunPaths) -> Results:
        """Make the report, which takes seconds, once the result is shown."""
        limit = self.config.time_limit
        left_s = math.inf if limit is None else self.began + limit - time.monotonic()
        begin = time.perf_counter()
        report = self.config.report
        page, notes = make_report(
            paths, full=report.level == "full", left_s=left_s, checks=bool(report.fail_on)
        )
        results = read_results(paths)
        took_s = round(time.perf_counter() - begin, 3)
        phases_s = {**results.phases_s, "run": {**results.phases_s["run"], "report": took_s}}
        write_results(paths, results := results.model_copy(update={"phases_s": phases_s}))
        self.display.report(page, notes)
        return results


def _run_here(asked: _Asked) -> RunOutcome:
    """The run on this machine's devices."""
    config, environ = asked.config, asked.environ
    devices = choose_devices(
        asked.machine, gpus=config.devices.gpus, cpu_lanes=config.devices.cpu_lanes, environ=environ
    )
    if asked.resume and devices[0].kind == "cpu":
        config = for_cpu(config)
        asked = replace(asked, config=config)
    if config.trees.tree_method == "gpu_hist" and devices[0].kind == "cpu":
        raise DeviceError(
            'trees.tree_method = "gpu_hist": no GPU is visible here. Set it to "hist" to train on the CPU.'
        )
    if config.cluster.nodes > 1 and not asked.dry_run:
        launcher_words(environ)  # refuse now, not when the table is ready
    with reserved_ports(len(devices)) as ports:
        on_gpu = devices[0].kind == "cuda"
        plan = make_plan(
            config, asked.machine, devices, ports, cuda_engine=engine_with_cuda() if on_gpu else None,
            proven=on_gpu and is_proven(asked.machine, devices), started=asked.began, source=asked.source,
            size=parquet_size(asked.source),
        )  # fmt: skip
        if plan.needs_jvm:
            by_key = config.prepare.by == "spark"
            check_jvm('prepare.by = "spark"' if by_key else asked.source.name, environ)
        if asked.dry_run:
            asked.show(asked.known(plan))
            paths = RunPaths(root=asked.out or Path())
            return RunOutcome(exit_code=EXIT_DONE, paths=paths, plan=plan, results=None)
        with asked.folder() as paths:
            plan = asked.known(plan)
            write_json(paths.plan, plan)
            asked.show(plan)
            with stopping(paths, asked.display):
                with scratch_folder() as scratch:
                    # Variables that the batch script sets take precedence.
                    shared = {**network_environment(config.cluster), **environ}
                    workers = supervised_workers(
                        paths, plan, config, scratch=scratch, source=asked.source, environ=shared
                    )
                    trained = _train(asked, paths, workers)
                return asked.finished(paths, plan, trained)


def _run_on_cluster(asked: _Asked, settings: ClusterSettings) -> RunOutcome:
    """The same run as one Spark application; its driver makes the plan when it has its executors."""
    with asked.folder() as paths:
        asked.display.waiting(f"waiting for executors of {settings.master}")
        try:
            with stopping(paths, asked.display), scratch_folder() as scratch:
                supervisor = supervised_driver(
                    paths, settings, asked.config, scratch=scratch, source=asked.source,
                    began=asked.started, dry_run=asked.dry_run, environ=asked.environ,
                )  # fmt: skip
                with supervisor as workers:
                    plan = asked.known(workers.plan)
                    asked.show(plan)
                    if asked.dry_run:
                        return RunOutcome(exit_code=EXIT_DONE, paths=paths, plan=plan, results=None)
                    trained = _train(asked, paths, nullcontext(workers))
        finally:
            if asked.dry_run:
                shutil.rmtree(paths.root, ignore_errors=True)
        return asked.finished(paths, workers.plan, trained)


def _found(config: RunConfig, title: str | None, *, has_table: bool) -> tuple[RunConfig, Source]:
    """The source of the run, and the configuration with what was found out about it."""
    asked = config.data.source
    if asked is None or asked == DEMO:
        if config.data.valid or config.data.test:
            raise ConfigError("data.test and data.valid need a SOURCE of yours. Name it, or leave them out.")
        return with_demo_target(config), DEMO_SOURCE
    if has_table:  # its source is not read again, and may be gone by now
        return config, Source(name=title or asked, location=asked, format="parquet")
    check_splits_of(config)
    dialect = Dialect.of(config.data)
    found = find_source(asked, dialect)
    held_out = {
        split: find_source(name, dialect)
        for split, name in (("valid", config.data.valid), ("test", config.data.test))
        if name is not None
    }
    # run.toml must work from any folder, and must not name a file that exists only for this run.
    lasting = {split: table.lasting for split, table in held_out.items()}
    data = config.data.model_copy(update={"source": title or found.lasting, **lasting})
    source = found.model_copy(update={"name": title or asked, **held_out})
    check_files(source)
    return config.model_copy(update={"data": data}), source


def _train(
    asked: _Asked, paths: RunPaths, started: AbstractContextManager[WorkerSupervisor | DriverSupervisor]
) -> list[Trained]:
    config, display = asked.config, asked.display

    def on_table() -> None:
        schema = read_schema(paths)
        display.table(schema)
        if schema.targets:  # each has its own
            return
        resolved = workers.plan.resolved(config, TableSize.of(schema))
        write_text(paths.config, config_io.dump(resolved.config), mode=0o600)

    with (
        started as workers,
        Monitor(
            paths.telemetry, lambda: {os.getpid(): "run", **workers.processes()},
            gpus=[uuid for lane in workers.plan.lanes if (uuid := lane.cuda_visible_devices)],
        ) as monitor,
    ):  # fmt: skip
        try:
            outcome = workers.follow(display.event, on_table, _beside(paths, workers.plan, display, monitor))
        except NoticeToStop as notice:
            save_networks(paths, workers.plan, within_s=notice.save_within_s)
            raise
        found = []
        # At the same time, the workers close Spark and H2O.
        for part in parts_of(paths, workers.plan, config, outcome):
            begin = time.perf_counter()
            with watch_self(config.hang_after_s or math.inf, paths.hang_log):
                evaluation = evaluate(
                    part.paths, part.plan, part.schema, part.failed, config.seed, part.notes,
                    config.intervals, config.groups,
                )  # fmt: skip
            trained = Trained(
                part=part, found=evaluation, scoring_s=time.perf_counter() - begin,
                price_per_hour=config.cost.price_per_hour,
            )  # fmt: skip
            found.append(trained)
    return found


def _beside(paths: RunPaths, plan: Plan, display: Display, monitor: Monitor) -> Iterator[None]:
    """Between two looks at the lanes: show new samples, and import for the end."""
    imports, shown = import_for_the_end(paths, plan), None
    while True:
        if monitor.newest is not None and monitor.newest is not shown:
            shown = monitor.newest
            display.sample(shown)
        next(imports, None)
        yield
