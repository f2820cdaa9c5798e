"""The command line. Reads options, passes them to the run, and turns every refusal into one line."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from types import FrameType
from typing import Annotated

import typer
from typer.exceptions import TyperException

from sparkgpu import __version__
from sparkgpu.cli.doctor import doctor
from sparkgpu.cli.models import explain, export, predict, refit
from sparkgpu.cli.results import compare, monitor, report, schema
from sparkgpu.cli.run import run
from sparkgpu.core.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    AskedToEnd,
    ConfigError,
    NoticeToStop,
    SparkgpuError,
    fault_of_machine,
)
from sparkgpu.core.host.interpreter import complete_environment
from sparkgpu.core.words import clean
from sparkgpu.lanes.slurm.command import slurm
from sparkgpu.ops.advise.command import advise
from sparkgpu.ops.bench.command import bench
from sparkgpu.present.terminal.spool import say

EXIT_CODES = (
    "Exit codes: 0 done · 2 configuration · 3 device or environment · 4 data · 5 a trial or lane failed "
    "(what finished is reported) · 130 interrupted."
)

app = typer.Typer(
    name="sparkgpu", help="Trees or neural nets on your table, and how many GPUs are worth it?",
    no_args_is_help=True, pretty_exceptions_enable=False, epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program itself."""


app.add_typer(slurm, name="slurm")
app.add_typer(bench, name="bench")
for _command in (run, predict, explain, export, refit, compare, report, monitor, doctor, advise, schema):
    app.command(epilog=EXIT_CODES if _command is run else None)(_command)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``sparkgpu``, ``python -m sparkgpu`` and ``jobs/train.py``; never returns."""
    complete_environment()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if threading.current_thread() is threading.main_thread():
        # A batch system ends a job with SIGTERM. If asked, it sends SIGUSR1 some time before that.
        signal.signal(signal.SIGTERM, _interrupt)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it must stay ignored
            signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGUSR1, _give_notice)
    try:
        " ".join(arguments or sys.argv).encode()  # refuses letters that the locale lacks
        status = app(arguments, prog_name="sparkgpu", standalone_mode=False) or EXIT_DONE
        gc.freeze()  # the interpreter then does not search what it drops anyway
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
        message = error.format_message()
        if message:  # without arguments, typer has already shown the help
            end = "" if message.endswith((".", "?")) else "."
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "sparkgpu"
            _say(f"{message}{end} Run `{command} --help` to see what you can use.")
        sys.exit(ConfigError.exit_code)
    except Exception as error:
        if (fault := fault_of_machine(error)) is None:
            raise
        _say(str(fault))
        sys.exit(fault.exit_code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Ending the lanes takes a few seconds, and another one would only end that half-way. Not a function that
    # does nothing: Python takes its functions back before it has quite ended.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(ending, signal.SIG_IGN)
    raise AskedToEnd if number == signal.SIGTERM else KeyboardInterrupt


def _give_notice(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a second signal would interrupt the saving
    raise NoticeToStop


def _say(message: str) -> None:
    say(f"sparkgpu: {clean(message)}\n", sys.stderr)
