"""Options that several commands share, as typer reads them: one name and one help for the same key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SourceAsInRun = Annotated[
    str | None, typer.Argument(help="The table, as `sparkgpu run` takes it; without it, the built-in demo.")
]
Target = Annotated[str | None, typer.Option(help="The column to predict.")]
Task = Annotated[str | None, typer.Option(help="auto, binary, multiclass or regression.")]
Gpus = Annotated[str | None, typer.Option(help="GPU indices or UUIDs, such as 0,1, or all.")]
CpuLanes = Annotated[int | None, typer.Option(help="Number of lanes on the CPU; they share the cores.")]
Preset = Annotated[str | None, typer.Option(help="fast, balanced or best.")]
ConfigFile = Annotated[Path | None, typer.Option(help="A run.toml to read the configuration from.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON; all else is on stderr.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one configuration key; repeat the option for more."),
]
