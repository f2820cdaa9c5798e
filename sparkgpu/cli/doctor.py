"""``sparkgpu doctor``: what works on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkgpu.core.config.command_options import AsJson
from sparkgpu.core.errors import EXIT_DONE, ConfigError, DeviceError

if TYPE_CHECKING:
    from sparkgpu.ops.doctor.check import Check


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Train on each device, and leave doctor.json and doctor.md.")
    ] = False,
    gpus: Annotated[str | None, typer.Option(help="With --deep: GPU indices or UUIDs, or all.")] = None,
    cpu_lanes: Annotated[int | None, typer.Option(help="With --deep: train on this many CPU lanes.")] = None,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(help="With --deep: the folder of doctor.json and doctor.md.")
    ] = None,
) -> None:
    """Say what of this machine works for a run; with --deep, prove it by training."""
    import os

    from sparkgpu.core.config import toml
    from sparkgpu.core.config.toml import keyed
    from sparkgpu.ops.doctor.doctor import examine
    from sparkgpu.present.terminal.commands import plain_console, telling

    if not deep and not (gpus is None and cpu_lanes is None and out is None):
        raise ConfigError("--gpus, --cpu-lanes and --out: without --deep nothing is trained. Add --deep.")
    asked = toml.load(options=keyed(gpus=gpus, cpu_lanes=cpu_lanes)).devices
    folder = out or Path()
    if deep and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise ConfigError(f"--out {folder}: it is not a folder that you may write to. Name another one.")
    console = plain_console()

    def show(check: Check) -> None:
        for line in check.lines() if not as_json else ():
            console.print(line, soft_wrap=True)

    with telling(None if as_json else console) as tell:
        report = examine(asked if deep else None, os.environ, show, tell)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    if deep:
        page = report.write(folder)
        if not as_json:
            typer.echo(f"\nwritten {page} and {page.with_suffix('.json').name}")
    raise typer.Exit(DeviceError.exit_code if report.status == "failure" else EXIT_DONE)
