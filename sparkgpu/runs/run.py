"""One run from its configuration to its report: plan, lanes, scores, report; and its exit code.

The parent process loads no Spark, no H2O and no torch. So it survives every failure in the lanes, and always
scores and reports the finished work.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from sparkgpu import __version__
from sparkgpu.cluster.crew import ClusterCrew, cluster_crew
from sparkgpu.cluster.settings import ClusterSettings, cluster_settings
from sparkgpu.config import toml as config_io
from sparkgpu.config.keys import RunConfig
from sparkgpu.errors import EXIT_DONE, ConfigError, DataError, DeviceError, NoticeToStop, TrialError
from sparkgpu.host.devices import Machine, choose_devices, find_machine
from sparkgpu.host.java import find_java
from sparkgpu.host.launcher import launcher_words, network_environment
from sparkgpu.host.monitor import Monitor
from sparkgpu.host.ports import reserved_ports
from sparkgpu.host.provenance import host, versions
from sparkgpu.host.scratch import scratch_folder
from sparkgpu.host.watchdog import looking_after_myself
from sparkgpu.lanes.crew import Crew, Outcome, crew
from sparkgpu.plan.plan import Plan, make_plan
from sparkgpu.rundir.files import read_json, write_json, write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.runs import evaluate
from sparkgpu.runs.folder import keep_log, run_folder
from sparkgpu.runs.notice import save_networks
from sparkgpu.table.demo import DEMO, DEMO_TARGET, DEMO_TITLE
from sparkgpu.table.schema import TableSchema, read_schema
from sparkgpu.table.source import find_source
from sparkgpu.terminal import Display

# In an order in which no single import takes long.
_FOR_THE_END = (
    "numpy", "pandas", "scipy.linalg", "scipy.sparse.csgraph", "scipy.optimize", "scipy.stats", "joblib",
    "sklearn.utils", "sklearn.metrics", "matplotlib.pyplot", "jinja2", "sparkgpu.report",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """A finished run: exit code, folder, and the content of ``metrics.json`` (None after a dry run)."""

    exit_code: int
    paths: RunPaths
    metrics: dict[str, Any] | None


def run(
    config: RunConfig,
    display: Display,
    *,
    out: Path | None = None,
    dry_run: bool = False,
    resume: bool = False,
    title: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> RunOutcome:
    """Carry out one run or, with `resume`, the rest of the run in `out`.

    `title` names a source that is not one of the user's files.

    Raises a `SparkgpuError` if nothing could be trained. A refused table leaves no folder.
    """
    started = time.time()
    source = config.data.source or DEMO
    title = title or config.data.source or DEMO_TITLE
    if source == DEMO:
        config = _with_demo_target(config)
    elif not (resume and out is not None and RunPaths(root=out).schema.exists()):
        found = find_source(source)
        source = found.location if found.format else found.name
        # run.toml must work from any folder, and must not name a file that exists only for this run.
        lasting = source if title == config.data.source else title
        config = config.model_copy(update={"data": config.data.model_copy(update={"source": lasting})})
    machine = find_machine()
    find_java(environ)
    if settings := cluster_settings(config.cluster, environ):
        return _run_on_cluster(
            config, settings, display, out, source, title, started, machine, environ,
            dry_run=dry_run, resume=resume,
        )  # fmt: skip
    devices = choose_devices(
        machine, gpus=config.devices.gpus, cpu_lanes=config.devices.cpu_lanes, environ=environ
    )
    if config.trees.tree_method == "gpu_hist" and devices[0].kind == "cpu":
        raise DeviceError(
            'trees.tree_method = "gpu_hist": no GPU is visible here. Set it to "hist" to train on the CPU.'
        )
    if config.cluster.nodes > 1 and not dry_run:
        launcher_words(environ)  # refuse now, not when the table is ready
    with reserved_ports(len(devices)) as ports:
        plan = make_plan(config, machine, devices, ports)
        if dry_run:
            display.plan(plan, title, config.data.target)
            return RunOutcome(exit_code=EXIT_DONE, paths=RunPaths(root=out or Path()), metrics=None)
        paths = run_folder(config, out, source, title, started, machine, resume=resume)
        write_json(paths.plan, plan)
        display.plan(plan, title, config.data.target)
        with scratch_folder() as scratch:
            # Variables that the batch script sets take precedence.
            shared = {**network_environment(config.cluster), **environ}
            workers = crew(paths, plan, config, scratch=scratch, source=source, title=title, environ=shared)
            trained = _train(config, display, paths, plan, workers)
    return _finished(config, display, paths, plan, trained, started, machine)


def _run_on_cluster(
    config: RunConfig,
    settings: ClusterSettings,
    display: Display,
    out: Path | None,
    source: str,
    title: str,
    started: float,
    machine: Machine,
    environ: Mapping[str, str],
    *,
    dry_run: bool,
    resume: bool,
) -> RunOutcome:
    """The same run as one Spark application; its driver makes the plan when it has its executors."""
    paths = run_folder(config, out, source, title, started, machine, resume=resume)
    display.waiting(f"waiting for executors of {settings.master}")
    with scratch_folder() as scratch:
        crew = cluster_crew(
            paths, settings, config, scratch=scratch, source=source, title=title, dry_run=dry_run,
            environ=environ,
        )  # fmt: skip
        try:
            with crew as workers:
                plan = workers.plan
                display.plan(plan, title, config.data.target)
                if not dry_run:
                    trained = _train(config, display, paths, plan, nullcontext(workers))
        except (ConfigError, DataError, DeviceError):
            if not paths.schema.exists():
                shutil.rmtree(paths.root, ignore_errors=True)
            raise
        except KeyboardInterrupt:
            if paths.root.exists():
                _keep_log(paths, display)
            raise
        finally:
            if dry_run:
                shutil.rmtree(paths.root, ignore_errors=True)
    if dry_run:
        return RunOutcome(exit_code=EXIT_DONE, paths=paths, metrics=None)
    return _finished(config, display, paths, workers.plan, trained, started, machine)


def _finished(
    config: RunConfig,
    display: Display,
    paths: RunPaths,
    plan: Plan,
    trained: _Trained,
    started: float,
    machine: Machine,
) -> RunOutcome:
    with looking_after_myself(config.hang_after_s or math.inf, paths.hang_log):
        metrics = _finish(paths, plan, trained, started, machine)
    display.finish(metrics, paths)
    failed = TrialError.exit_code if trained.outcome.failed else EXIT_DONE
    return RunOutcome(exit_code=failed, paths=paths, metrics=metrics)


def _with_demo_target(config: RunConfig) -> RunConfig:
    if config.data.target not in (None, DEMO_TARGET):
        raise ConfigError(
            f"--target {config.data.target}: the built-in demo predicts {DEMO_TARGET!r}. Give a SOURCE, or "
            "leave --target out."
        )
    return config.model_copy(update={"data": config.data.model_copy(update={"target": DEMO_TARGET})})


@dataclass(frozen=True, kw_only=True)
class _Trained:
    """Write the results: how the trials ended, their scores, and what the run took."""

    outcome: Outcome
    schema: TableSchema
    found: dict[str, Any]
    scoring_s: float
    monitor: Monitor


def _train(
    config: RunConfig,
    display: Display,
    paths: RunPaths,
    plan: Plan,
    started: AbstractContextManager[Crew | ClusterCrew],
) -> _Trained:
    def on_table() -> None:
        schema = read_schema(paths)
        display.table(schema)
        resolved = plan.resolved(config, task=schema.task, train_rows=schema.splits["train"])
        write_text(paths.config, config_io.dump(resolved))

    gpus = [lane.cuda_visible_devices for lane in plan.lanes if lane.cuda_visible_devices]
    try:
        with (
            started as workers,
            Monitor(paths.telemetry, lambda: [os.getpid(), *workers.process_ids()], gpus=gpus) as monitor,
        ):
            try:
                outcome = workers.follow(display.event, on_table, _import_for_the_end())
            except NoticeToStop:
                save_networks(paths, plan)
                raise
            except KeyboardInterrupt:
                workers.leave_stacks_of_silent()
                raise
            begin = time.perf_counter()
            # At the same time, the workers close Spark and H2O.
            schema = read_schema(paths)
            with looking_after_myself(config.hang_after_s or math.inf, paths.hang_log):
                found = evaluate.evaluate(paths, plan, schema, outcome.failed, config.seed, outcome.notes)
            scoring_s = time.perf_counter() - begin
    except DataError:
        if not paths.schema.exists():  # nothing was trained: free the name for the next try
            shutil.rmtree(paths.root)
        raise
    except KeyboardInterrupt:
        _keep_log(paths, display)
        raise
    return _Trained(outcome=outcome, schema=schema, found=found, scoring_s=scoring_s, monitor=monitor)


def _keep_log(paths: RunPaths, display: Display) -> None:
    """After an interruption before the table exists: free the run's name, and show where its log is."""
    if not paths.schema.exists() and (kept := keep_log(paths)):
        display.close()
        display.error(f"there was no table yet, so the run's folder was removed; its log is {kept}")


def _import_for_the_end() -> Iterator[None]:
    """Import, piece by piece, what scoring and the report need, so that it is ready at the end.

    It runs in the thread that follows the lanes: two threads that import at the same time can deadlock.
    """
    for name in _FOR_THE_END:
        with _interrupts_later():
            import_module(name)
        yield


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Delay Ctrl-C: in code that an import runs with `exec`, it would end Python with status -2."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def _finish(
    paths: RunPaths, plan: Plan, trained: _Trained, started: float, machine: Machine
) -> dict[str, Any]:
    from sparkgpu import report

    schema, monitor = trained.schema, trained.monitor
    phases = {
        f"lane {lane.index} {branch}": read_json(paths.lane(lane.index).phases(branch))
        for lane in plan.lanes
        for branch in ("trees", "neural")
        if paths.lane(lane.index).phases(branch).exists()
    }
    metrics: dict[str, Any] = {
        "schema_version": 1,
        "run": {
            "name": paths.root.name,
            "started_at": datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "wall_s": 0.0,
            "sparkgpu": __version__,
            "versions": versions(),
            "host": host(machine),
            "peak_rss_bytes": monitor.peak_rss_bytes,
        },
        "data": {
            "source": schema.source,
            "rows": schema.rows,
            "rows_refused": schema.rows_refused,
            "num_features": len(schema.features),
            "target": schema.target,
            "task": schema.task,
            "classes": list(schema.classes),
            "splits": schema.splits,
            "fingerprint": schema.fingerprint,
        },
        **trained.found,
        "cost": {
            "device_hours": round(len(plan.lanes) * (time.time() - started) / 3600, 6),
            "energy_wh": monitor.energy_wh,
            "price": None,
        },
        "phases_s": {**phases, "run": {"scoring": round(trained.scoring_s, 3)}},
    }
    metrics["run"]["wall_s"] = round(time.time() - started, 3)
    write_json(paths.metrics, metrics)
    begin = time.perf_counter()
    report.build(paths)
    metrics["phases_s"]["run"]["report"] = round(time.perf_counter() - begin, 3)
    metrics["run"]["wall_s"] = round(time.time() - started, 3)
    write_json(paths.metrics, metrics)
    return metrics
