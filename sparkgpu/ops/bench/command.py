"""The commands of ``sparkgpu bench``. They read options and print; other modules do the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkgpu.core.config.command_options import (
    AsJson,
    Assignments,
    ConfigFile,
    CpuLanes,
    Gpus,
    Preset,
    SourceAsInRun,
    Target,
)  # fmt: skip
from sparkgpu.core.errors import ConfigError

if TYPE_CHECKING:
    from sparkgpu.core.rundir.advice import BenchRecord
    from sparkgpu.ops.bench.bench import Asked, Tell

bench = typer.Typer(
    help="Time the network alone: over several devices, and from several places of its rows.",
    no_args_is_help=True,
)

_Rows = Annotated[int, typer.Option(min=200, help="At most so many rows of the table.")]
_Epochs = Annotated[
    int | None, typer.Option(min=2, help="Passes over the rows for each figure; default: some seconds.")
]
_Out = Annotated[
    Path | None,
    typer.Option(help="A new folder for bench.md and bench.json; RUN/bench shows it in that run's report."),
]


@bench.command()
def scaling(
    source: SourceAsInRun = None,
    devices: Annotated[str, typer.Option(help="Numbers of devices, such as 1,2,4.")] = "1,2",
    strategies: Annotated[
        str, typer.Option(help="How one network is spread, such as dp,ddp,fsdp.")
    ] = "dp,ddp,fsdp",
    simulate: Annotated[
        str | None, typer.Option(metavar="COUNTS", help="Go on by a model to so many devices: 8,64,512.")
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="For --simulate: GB/s between two devices; default: measured.")
    ] = None,
    latency: Annotated[
        float | None, typer.Option(help="For --simulate: its microseconds; default: measured.")
    ] = None,
    target: Target = None,
    preset: Preset = None,
    gpus: Gpus = None,
    cpu_lanes: CpuLanes = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    rows: _Rows = 30_000,
    epochs: _Epochs = None,
    out: _Out = None,
    as_json: AsJson = False,
) -> None:
    """Time one network over several devices against one device, and against a network on each."""
    from sparkgpu.ops.advise.scaling import Link
    from sparkgpu.ops.bench import bench as work

    counts = work.counts_of("--devices", devices, least=1)
    further = work.counts_of("--simulate", simulate, least=2) if simulate else ()
    given = (bandwidth, latency)
    if (bandwidth is None) != (latency is None) or any(value is not None and value <= 0 for value in given):
        raise ConfigError("--bandwidth and --latency: give both, above 0, or neither to measure them here.")
    if bandwidth is not None and not further:
        raise ConfigError("--bandwidth and --latency are for --simulate. Add it, such as --simulate 8,64.")
    link = None
    if bandwidth is not None and latency is not None:
        link = Link(bytes_per_s=bandwidth * 1e9, latency_s=latency * 1e-6, origin="as given")
    asked = _asked(rows, epochs, config, assignments, source=source, target=target, preset=preset, gpus=gpus,
                   cpu_lanes=cpu_lanes)  # fmt: skip
    names = tuple(name.strip() for name in strategies.split(",") if name.strip())
    _carry_out(out, as_json, lambda tell: work.scaling(asked, counts, names, further, link, tell))


@bench.command()
def loading(
    source: SourceAsInRun = None,
    target: Target = None,
    preset: Preset = None,
    gpus: Gpus = None,
    cpu_lanes: CpuLanes = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    rows: _Rows = 30_000,
    epochs: _Epochs = None,
    out: _Out = None,
    as_json: AsJson = False,
) -> None:
    """Time a small network on rows that are on the device, and on rows that are streamed from files."""
    from sparkgpu.ops.bench import bench as work

    sets = ["neural.architecture=mlp", *(assignments or ())]
    asked = _asked(rows, epochs, config, sets, source=source, target=target, preset=preset, gpus=gpus,
                   cpu_lanes=cpu_lanes)  # fmt: skip
    _carry_out(out, as_json, lambda tell: work.loading(asked, tell))


def _asked(rows: int, epochs: int | None, file: Path | None, sets: list[str] | None, **options: Any) -> Asked:
    from sparkgpu.core.config import toml
    from sparkgpu.core.config.toml import keyed
    from sparkgpu.ops.bench.bench import Asked

    found = toml.load(file=file, options=keyed(**options), assignments=sets or ())
    if found.data.folders:
        raise ConfigError("target: a bench trains for one target. Name one of them.")
    return Asked(config=found, rows=rows, epochs=epochs)


def _carry_out(out: Path | None, as_json: bool, work: Callable[[Tell], Iterator[BenchRecord]]) -> None:
    """Write the table after each configuration; show what there is of it, whatever ended the bench."""
    from sparkgpu.present.scaling import bench_table
    from sparkgpu.present.terminal.commands import show_lines, show_table, telling

    folder = _new_folder(out)
    found: BenchRecord | None = None
    try:
        with telling() as tell:
            for found in work(tell):
                _write(found, folder)
    finally:
        if found is None:
            folder.rmdir()
        elif as_json:
            typer.echo(found.model_dump_json(indent=2))
        else:
            show_table(found.title, bench_table(found.rows))
            written = f"written {folder / 'bench.md'} and bench.json"
            show_lines("", *(f"- {note}" for note in found.notes), "", written)


def _write(found: BenchRecord, folder: Path) -> None:
    from sparkgpu.core.rundir.files import write_json, write_text
    from sparkgpu.core.words import capital
    from sparkgpu.present.scaling import bench_table
    from sparkgpu.present.table_model import markdown

    notes = (f"- {capital(note)}." for note in found.notes)
    lines = (f"# {found.title}", "", markdown(bench_table(found.rows)), "", *notes, "")
    write_text(folder / "bench.md", "\n".join(lines))
    write_json(folder / "bench.json", found)


def _new_folder(out: Path | None) -> Path:
    """The folder of a bench. Raises `ConfigError` if it is not a new or an empty folder."""
    from datetime import UTC, datetime

    from sparkgpu.runs.folder import check_folder

    check_folder(out)
    folder = out or Path("reports") / f"bench-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written ({error.strerror}). Choose another.") from None
    return folder
