"""Opens the directory of a run: a new one, or one to resume."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

from sparkgpu.config import toml as config_io
from sparkgpu.config.json_schema import run_schema
from sparkgpu.config.keys import RunConfig
from sparkgpu.errors import ConfigError
from sparkgpu.host.devices import Machine
from sparkgpu.rundir.files import write_json, write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.unfinished import clear_unfinished
from sparkgpu.runs.provenance import environment
from sparkgpu.table.demo import DEMO
from sparkgpu.table.source import Source


def run_folder(
    config: RunConfig,
    out: Path | None,
    source: Source,
    started: float,
    machine: Machine,
    *,
    resume: bool,
) -> RunPaths:
    """The run directory, with the configuration and the environment written into it.

    With `resume` it is `out`, without unfinished work. Raises `ConfigError` if it is not writable, or if a
    new one is not empty.
    """
    if resume:
        assert out is not None
        paths = RunPaths(root=out.resolve())
        clear_unfinished(paths)
    else:
        paths = _new_folder(out, "demo" if source.location == DEMO else source.name, started)
    write_text(paths.config_schema, run_schema())
    write_text(paths.config, config_io.dump(config))
    write_json(paths.env, environment(machine))
    return paths


def check_folder(out: Path | None) -> None:
    """Raise `ConfigError` if a new run cannot use the folder `out`, which holds other files."""
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        what = "holds another run" if (out / "run.toml").exists() else "is not an empty folder"
        raise ConfigError(f"--out {out}: it {what}. Choose a new folder, or remove this one.")


def _new_folder(out: Path | None, source: str, started: float) -> RunPaths:
    """The run directory, new or empty; never a folder that holds another run."""
    if out is None:
        stem = re.sub(r"[^0-9A-Za-z._-]+", "-", Path(source.rstrip("/")).name.partition(".")[0]).strip("-")
        moment = datetime.fromtimestamp(started, UTC).strftime("%Y%m%dT%H%M%SZ")
        out = Path("reports") / f"{moment}-{stem or 'table'}"
        number = 2
        while out.exists():
            out, number = out.with_name(f"{out.name.partition('_')[0]}_{number}"), number + 1
    try:
        check_folder(out)
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"--out {out}: cannot be written ({error.strerror}). Choose another folder."
        ) from None
    return RunPaths(root=out.resolve())


def keep_log(paths: RunPaths) -> Path | None:
    """Remove the folder of a run that was interrupted before it had a table, so that its name is free again.

    The workers' output stays in a file beside it, which is returned: it may show the reason.
    """
    logs = sorted(file for file in paths.root.glob("lanes/*/*") if file.suffix in (".log", ".jsonl"))
    kept = paths.root.with_name(f"{paths.root.name}.interrupted.log") if logs else None
    if kept is not None:
        with kept.open("wb") as whole:
            for file in logs:
                whole.write(f"== {file.relative_to(paths.root)}\n".encode())
                with file.open("rb") as log:
                    shutil.copyfileobj(log, whole)
    shutil.rmtree(paths.root)
    return kept
