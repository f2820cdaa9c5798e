"""The directory of a run: a new one or one to resume, and word of what stopped a run before its end.

Of a resumed run only the devices and the network's strategy may change. The table and finished trials are
used as they are, a network continues from its last checkpoint, and trees start again.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import DevicesConfig, PrepareConfig, RunConfig, dotted
from sparkgpu.core.config.toml import run_schema
from sparkgpu.core.errors import (
    EXIT_INTERRUPTED,
    ConfigError,
    DataError,
    DeviceError,
    NoticeToStop,
    SparkgpuError,
    fault_of_machine,
)
from sparkgpu.core.host.devices import Machine
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.files import read_optional, read_record, write_json, write_text
from sparkgpu.core.rundir.lock import hold, owner_of, refuse_in_use
from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.rundir.paths import RunPaths, clear_unfinished, has_table, refuse_planted
from sparkgpu.core.rundir.records import StopRecord
from sparkgpu.core.table.demo import DEMO
from sparkgpu.core.table.source import Source
from sparkgpu.present.terminal.display import Display
from sparkgpu.runs.provenance import environment


@contextmanager
def run_folder(
    config: RunConfig,
    out: Path | None,
    source: Source,
    started: float,
    machine: Machine,
    *,
    resume: bool,
    warn: Callable[[str], None],
) -> Iterator[RunPaths]:
    """The run directory, with the configuration and the environment in it; no other run may use it meanwhile.

    With `resume` it is `out`, without unfinished work; what is damaged is said to `warn`. Raises
    `ConfigError` if it is not writable, if a new one is not empty, or if another run uses it.
    """
    if not resume:
        out = _new_folder(out, "demo" if source.location == DEMO else source.name, started)
    assert out is not None
    paths = RunPaths(root=out.resolve())
    try:
        with hold(RunPaths(root=out), started):
            if resume:
                for damage in clear_unfinished(paths):
                    warn(damage)
            write_text(paths.config_schema, run_schema())
            write_text(paths.config, config_io.dump(config), mode=0o600)
            write_json(paths.env, environment(machine))
            yield paths
    except Exception as error:
        if (fault := _fault(error, paths, is_new=not resume)) is None:
            raise
        raise fault from error


def _fault(error: Exception, paths: RunPaths, *, is_new: bool) -> SparkgpuError | None:
    """What to tell of an error that a disk or a limit caused; a folder without anything of use is removed."""
    if isinstance(error, SparkgpuError):
        return None
    if isinstance(error, FileNotFoundError) and not (paths.config.exists() or paths.schema.exists()):
        shutil.rmtree(paths.root, ignore_errors=True)  # what was written since
        return DeviceError(
            f"--out {paths.root}: somebody removed the folder while the run used it. Start the run again."
        )
    if isinstance(error, OSError) and str(error.filename or paths.root).startswith(str(paths.root)):
        error.filename = str(paths.root)
    fault = fault_of_machine(error)
    if fault and paths.schema.exists():
        return type(fault)(f"{fault} Then {_goes_on(paths)}.")
    if fault and is_new:
        shutil.rmtree(paths.root, ignore_errors=True)
    return fault


def _goes_on(paths: RunPaths) -> str:
    return f"`sparkgpu run --resume --out {shlex.quote(str(paths.root))}` goes on from here"


def check_folder(out: Path | None) -> None:
    """Raise `ConfigError` if a new run cannot use the folder `out`, which holds other files."""
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        refuse_in_use(paths := RunPaths(root=out))
        if paths.config.exists() and (owner := owner_of(paths)):
            raise ConfigError(
                f"--out {out}: it holds a run that was killed ({owner}). {_goes_on(paths)}; or choose a new "
                "folder."
            )
        what = "holds another run" if paths.config.exists() else "is not an empty folder"
        raise ConfigError(f"--out {out}: it {what}. Choose a new folder, or remove this one.")


def _new_folder(out: Path | None, source: str, started: float) -> Path:
    """A new or empty folder; never one that holds another run."""
    if out is None:
        stem = re.sub(r"[^0-9A-Za-z._-]+", "-", Path(source.rstrip("/")).name.partition(".")[0]).strip("-")
        began = datetime.fromtimestamp(started, UTC).strftime("%Y%m%dT%H%M%SZ")
        out = Path("reports") / f"{began}-{stem or 'table'}"
        number = 2
        while out.exists():
            out, number = out.with_name(f"{out.name.partition('_')[0]}_{number}"), number + 1
    check_folder(out)
    return out


@contextmanager
def stopping(paths: RunPaths, display: Display) -> Iterator[None]:
    """If the block is interrupted or refuses, leave what a reader or `--resume` needs, and say it.

    Without a table nothing was trained, so an interrupted run and a refused table free the folder's name, and
    so does what is refused before there is a plan.
    """
    with record_stop_reason(paths):
        try:
            yield
        except KeyboardInterrupt:
            display.close()
            if paths.schema.exists():
                display.error(_goes_on(paths))
            elif kept := _keep_log(paths):
                display.error(f"there was no table yet, so the run's folder was removed; its log is {kept}")
            raise
        except (ConfigError, DataError, DeviceError) as error:
            if not paths.schema.exists() and (isinstance(error, DataError) or not paths.plan.exists()):
                shutil.rmtree(paths.root, ignore_errors=True)
            raise


def _keep_log(paths: RunPaths) -> Path | None:
    """Remove the folder; the workers' output stays in a file beside it: it may show the reason."""
    logs = sorted(file for file in paths.root.glob("lanes/*/*") if file.suffix in (".log", ".jsonl"))
    kept = paths.root.with_name(f"{paths.root.name}.interrupted.log") if logs else None
    if kept is not None:
        with kept.open("wb") as whole:
            for file in logs:
                whole.write(f"== {file.relative_to(paths.root)}\n".encode())
                with file.open("rb") as log:
                    shutil.copyfileobj(log, whole)
    shutil.rmtree(paths.root, ignore_errors=True)
    return kept


_MAY_CHANGE = {
    "devices.gpus", "devices.cpu_lanes", "neural.strategy", "neural.model_parallel",
    "neural.micro_batch_size", "neural.max_restarts", "neural.rank_timeout_s", "cluster.nodes",
    "cluster.interface", "cluster.infiniband", "cluster.p2p_level", "cluster.master", "cluster.spark",
    "cluster.executors", "hang_after_s", "intervals", "groups", "report.fail_on",
}  # fmt: skip


def resumed_config(
    out: Path | None, options: Mapping[str, Any], assignments: Iterable[str] = ()
) -> RunConfig:
    """The configuration of the run in `out`, with the devices and the strategy asked for now.

    `options` and `assignments` are those of `config.toml.load`. Raises `ConfigError` if there is no such run,
    or if an option would make it a different run.
    """
    if out is None:
        raise ConfigError("--resume: name the folder of the stopped run with --out DIR.")
    paths = RunPaths(root=out)
    refuse_planted(paths)
    if not paths.config.is_file():
        raise ConfigError(f"--resume --out {out}: it holds no run.toml. Give the folder of a run.")
    if (results := read_optional(paths.metrics, Results)) and results.refit:
        raise ConfigError(f"{out}: `sparkgpu refit` made it. Use the run that it is of, {results.refit.run}.")
    before = config_io.load(file=paths.config)
    asked = config_io.load(options=options, assignments=assignments)
    known, wanted, default = (dotted(found.model_dump()) for found in (before, asked, RunConfig()))
    changed = {key for key, value in wanted.items() if value not in (default[key], known[key])}
    if refused := sorted(changed - _MAY_CHANGE):
        raise ConfigError(
            f"--resume --out {out}: {refused[0]} cannot change in a resumed run; only devices, the "
            "network's strategy, intervals and groups can. Leave it out, or start a new run."
        )

    def new(section: str) -> dict[str, Any]:
        return {key.removeprefix(section): wanted[key] for key in changed if key.startswith(section)}

    neural = before.neural.model_copy(update=new("neural."))
    cluster = before.cluster.model_copy(update=new("cluster."))
    devices = asked.devices if asked.devices != DevicesConfig() else before.devices
    plan = read_record(paths.plan, Plan) if paths.plan.exists() else None
    return before.model_copy(
        update={
            **{key: wanted[key] for key in ("hang_after_s", "intervals", "groups") if key in changed},
            "report": before.report.model_copy(update=new("report.")),
            "devices": devices,
            "neural": neural,
            "cluster": cluster,
            # The number of devices may have changed since, and the source need not be there any more.
            **({"repeats": len({trial.seed for trial in plan.trials})} if plan else {}),
            **({"prepare": PrepareConfig(by=plan.prepared_by)} if plan and has_table(paths) else {}),
        }
    )


def for_cpu(config: RunConfig) -> RunConfig:
    """The configuration of a run that began on GPUs, for what is left of it on CPU lanes."""
    if config.trees.tree_method != "gpu_hist":
        return config
    return config.model_copy(update={"trees": config.trees.model_copy(update={"tree_method": "hist"})})


@contextmanager
def record_stop_reason(paths: RunPaths) -> Iterator[None]:
    """If the block is interrupted or refuses, write ``stopped.json``, unless the folder is gone by then.

    After a refusal the report says what happened.
    """
    try:
        yield
    except (KeyboardInterrupt, SparkgpuError) as error:
        code, message = EXIT_INTERRUPTED, "interrupted"
        if isinstance(error, NoticeToStop):
            message = error.message
        elif isinstance(error, SparkgpuError):
            code, message = error.exit_code, str(error)
        if paths.root.is_dir():
            with suppress(OSError):  # the error in flight matters more
                write_json(paths.stopped, StopRecord(exit_code=code, message=message))
                if code != EXIT_INTERRUPTED:  # whoever interrupts does not wait
                    _leave_page(paths)
        raise


def _leave_page(paths: RunPaths) -> None:
    """The report of what stands."""
    from sparkgpu.present.report import build

    with suppress(SparkgpuError):
        build(paths)
