"""The command line. Reads options, passes them to the run, and turns every refusal into one line."""

from __future__ import annotations

import errno
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import typer
from typer.exceptions import TyperException

from sparkgpu import __version__
from sparkgpu.advise.bench.command import bench
from sparkgpu.advise.command import advise
from sparkgpu.errors import EXIT_DONE, EXIT_INTERRUPTED, ConfigError, DeviceError, NoticeToStop, SparkgpuError
from sparkgpu.slurm.command import slurm
from sparkgpu.terminal.spool import say
from sparkgpu.words import clean

_HELP = "Trees or neural nets on your table, and how many GPUs are worth it?"

app = typer.Typer(
    name="sparkgpu", help=_HELP, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False
)


app.add_typer(slurm, name="slurm")
app.add_typer(bench, name="bench")
app.command()(advise)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def run(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Parquet file or folder, CSV (plain or compressed), ORC, JSON lines, or table:NAME. "
            "Without it, the built-in demo runs on real data."
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    task: Annotated[str | None, typer.Option(help="auto, binary, multiclass or regression.")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPU indices or UUIDs, such as 0,1, or all.")] = None,
    cpu_lanes: Annotated[
        int | None, typer.Option(help="Number of lanes on the CPU; they share the cores.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Number of repeats, each with its own seed; default: one per lane.")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="How one network uses several devices: auto, single, dp, ddp, fsdp, tp, pp, dp_tp, dp_pp."
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="fast, balanced or best.")] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Further models on the same rows, such as lightgbm,catboost,xgboost,realmlp,resnet.",
        ),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time for the whole run, such as 90s, 10m or 1h30m; it is used."),
    ] = None,
    search: Annotated[
        int | None, typer.Option(metavar="N", help="Try N settings for each model; the best join in.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A run.toml to read the configuration from.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set one configuration key; repeat the option for more."
        ),
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Write the finished run to MLflow: a server or a folder."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory: a new or an empty folder.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the stopped run in --out.")] = False,
    predicted: Annotated[
        bool,
        typer.Option("--advise", help="First predict time and memory; the report shows what became of it."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and exit.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the result and errors.")] = False,
) -> None:
    """Train trees and a network on a table, side by side, and say which is better."""
    from sparkgpu.config import toml
    from sparkgpu.config.options import keyed
    from sparkgpu.runs import run as orchestrate
    from sparkgpu.runs.resume import resumed_config
    from sparkgpu.terminal import open_display

    if mlflow is not None:
        from sparkgpu.predict.mlflow_model import check_mlflow, log_run

        check_mlflow()
    options = keyed(
        source=source, target=target, task=task, gpus=gpus, cpu_lanes=cpu_lanes, repeats=repeats,
        strategy=strategy, preset=preset, also=also or None, time_limit=time_limit,
        search=search,
    )  # fmt: skip
    if resume:
        if config is not None:
            raise ConfigError(
                f"--resume and --config {config}: a resumed run keeps its own settings; leave one out."
            )
        resolved = resumed_config(out, options, assignments or ())
    else:
        resolved = toml.load(file=config, options=options, assignments=assignments or ())
    advice = None
    if predicted and not (resume or dry_run):
        from sparkgpu.advise.command import predicted_of

        advice = predicted_of(resolved, quiet, out)
    with open_display(quiet) as display:
        outcome = orchestrate.run(resolved, display, out=out, dry_run=dry_run, resume=resume, advice=advice)
    if mlflow is not None and outcome.results is not None:
        typer.echo(f"mlflow  {log_run(outcome.paths.root, mlflow)} at {mlflow}")
    raise typer.Exit(outcome.exit_code)


@app.command()
def predict(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    source: Annotated[
        str, typer.Argument(help="Parquet file or folder, CSV (plain or compressed), ORC or JSON lines.")
    ],
    out: Annotated[Path, typer.Option(help="The file to write; it ends with .parquet or .csv.")],
    model: Annotated[
        str,
        typer.Option(
            help="best (the leader on the validation rows), the name of a model (trees, neural, blend, ...), "
            "or that of a trial."
        ),
    ] = "best",
    keep_columns: Annotated[
        bool, typer.Option("--keep-columns", help="Write the source's columns before the predictions.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only notes and errors.")] = False,
) -> None:
    """Predict the rows of a table with a model of a finished run."""
    from sparkgpu.predict.apply import predict_source
    from sparkgpu.predict.fitted import load
    from sparkgpu.predict.output import check_output
    from sparkgpu.table.source import find_source
    from sparkgpu.terminal.predicting import counting, show

    check_output(out)  # before the seconds of loading
    find_source(source)
    with counting(quiet) as progress:
        fitted = load(run_dir, model)
        outcome = predict_source(fitted, source, out, keep_columns=keep_columns, progress=progress)
    show(fitted, outcome, out, quiet=quiet)


@app.command()
def export(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    format: Annotated[
        str,
        typer.Option(
            help="onnx or torch for networks; onnx, mojo, xgboost, lightgbm or catboost for trees; mlflow."
        ),
    ],
    model: Annotated[str, typer.Option(help="best, or the name of a model or of a trial.")] = "best",
    out: Annotated[
        Path | None, typer.Option(help="The file to write; without it, a file in exports/ of the run.")
    ] = None,
) -> None:
    """Write a model of a finished run in a format that other programs read, and check it."""
    from sparkgpu.predict.export import MLFLOW, temperature_of
    from sparkgpu.predict.export import export as write

    typer.echo(write(run_dir, model, format, out))
    if format != MLFLOW and (by := temperature_of(run_dir, model)) is not None:
        _say(f"note: the file gives probabilities at temperature 1; this run predicts at {by:.4f}.")


@app.command()
def leaderboard(
    run_dirs: Annotated[list[Path], typer.Argument(help="The folders of finished runs of one table.")],
) -> None:
    """Show the models of several runs side by side, the best first."""
    from sparkgpu.terminal.leaderboard import show

    show(run_dirs)


@app.command()
def compare(
    run_dirs: Annotated[list[Path], typer.Argument(help="The folders of two or more finished runs.")],
    out: Annotated[
        Path, typer.Option(help="The page to write; an earlier page of this command is replaced.")
    ] = Path("comparison.html"),
) -> None:
    """Compare several runs: one leaderboard of all their models, and one page."""
    from sparkgpu.comparison.compare import compare as write

    write(run_dirs, out)


@app.command()
def report(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a run.")],
    short: Annotated[
        bool, typer.Option("--short", help="Leave out what takes seconds: explanations and checks.")
    ] = False,
) -> None:
    """Rebuild the report of a run from its folder alone; what it lacks is made."""
    from sparkgpu.rundir.paths import RunPaths
    from sparkgpu.runs.reporting import make_report

    if not run_dir.is_dir():
        raise ConfigError(f"{run_dir}: there is no such folder. Give the folder of a run.")
    page, notes = make_report(RunPaths(root=run_dir.resolve()), full=not short)
    for note in notes:
        _say(f"note: {note}")
    typer.echo(page)


@app.command()
def monitor(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a run, from this or another machine.")],
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the result and errors.")] = False,
) -> None:
    """Attach to a run from another terminal; it ends with the run's result and exit code."""
    from sparkgpu.terminal.monitoring import attach

    # Not by typer's exit: its 130 would mean that this command runs lanes, and stopped them.
    sys.exit(attach(run_dir, quiet=quiet))


@app.command()
def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Train on each device, and leave doctor.json and doctor.md.")
    ] = False,
    gpus: Annotated[str | None, typer.Option(help="With --deep: GPU indices or UUIDs, or all.")] = None,
    cpu_lanes: Annotated[int | None, typer.Option(help="With --deep: train on this many CPU lanes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="With --deep: the folder of doctor.json and doctor.md.")
    ] = None,
) -> None:
    """Say what of this machine works for a run; with --deep, prove it by training."""
    import os
    import time

    from sparkgpu.config import toml
    from sparkgpu.config.options import keyed
    from sparkgpu.doctor import doctor as examine
    from sparkgpu.doctor.page import write_report
    from sparkgpu.terminal.doctoring import examining

    if not deep and not (gpus is None and cpu_lanes is None and out is None):
        raise ConfigError("--gpus, --cpu-lanes and --out: without --deep nothing is trained. Add --deep.")
    asked = toml.load(options=keyed(gpus=gpus, cpu_lanes=cpu_lanes)).devices
    folder = out or Path()
    if deep and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise ConfigError(f"--out {folder}: it is not a folder that you may write to. Name another one.")
    began = time.monotonic()
    with examining(quiet=as_json) as shown:
        found = examine.look(os.environ, shown.check)
        trained = examine.train(asked, os.environ, shown.check, shown.begin) if deep else ()
    report = examine.reported(found, trained, began)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    if deep:
        page = write_report(folder, report)
        if not as_json:
            typer.echo(f"\nwritten {page} and {page.with_suffix('.json').name}")
    raise typer.Exit(DeviceError.exit_code if report.status == "failure" else EXIT_DONE)


@app.command()
def schema(
    file: Annotated[Literal["run", "metrics"], typer.Argument(help="Of run.toml, or of metrics.json.")],
) -> None:
    """Print a JSON Schema: of the configuration for editors, or of the results for programs."""
    from sparkgpu.config.json_schema import run_schema
    from sparkgpu.rundir.results import metrics_schema

    typer.echo(run_schema() if file == "run" else metrics_schema(), nl=False)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``sparkgpu``, ``python -m sparkgpu`` and ``jobs/train.py``; never returns."""
    if threading.current_thread() is threading.main_thread():
        # A batch system ends a job with SIGTERM. Treat it like Ctrl-C, so that the lanes end, too.
        signal.signal(signal.SIGTERM, _interrupt)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it must stay ignored
            signal.signal(signal.SIGINT, _interrupt)
        # If asked, it sends SIGUSR1 some time before that.
        signal.signal(signal.SIGUSR1, _give_notice)
    try:
        status = app(arguments, standalone_mode=False) or EXIT_DONE
        if status == EXIT_INTERRUPTED:  # typer turns Ctrl-C into this status without a message
            raise KeyboardInterrupt
        sys.exit(status)
    except SparkgpuError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _say("interrupted; all lanes were stopped.")
        sys.exit(EXIT_INTERRUPTED)
    except TyperException as error:
        message = error.format_message().rstrip(".")
        if message:  # without arguments, typer has already shown the help
            _say(f"{message}. Run `sparkgpu --help` to see what you can use.")
        sys.exit(ConfigError.exit_code)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = f" for {error.filename}" if error.filename else ""
        _say(f"the disk is full{where}. Free some space, or choose a folder on another disk with --out.")
        sys.exit(DeviceError.exit_code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Ending the lanes takes a few seconds, and another one would only end that half-way. Not a function that
    # does nothing: Python takes its functions back before it has quite ended.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def _give_notice(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a second signal would interrupt the saving
    raise NoticeToStop


def _say(message: str) -> None:
    say(f"sparkgpu: {clean(message)}\n", sys.stderr)
