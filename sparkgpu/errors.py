"""The refusals a user can meet, each with the exit code of the contract.

A message is one sentence or two: what was asked, what was found, what to do. Whatever is raised from here
reaches the terminal as that text alone; anything else is a defect of ours and keeps its traceback (in the
lane's log, never on the terminal).
"""

from __future__ import annotations

from typing import ClassVar

EXIT_DONE = 0
EXIT_INTERRUPTED = 130


class SparkgpuError(ValueError):
    """Base of every refusal; `kind` names it in ``error.json`` and `exit_code` is the process's."""

    kind: ClassVar[str] = "trial"
    exit_code: ClassVar[int] = 5


class ConfigError(SparkgpuError):
    """The configuration or the command line asks for something that does not exist."""

    kind = "configuration"
    exit_code = 2


class DeviceError(SparkgpuError):
    """A device, Java or another part of the environment that was asked for is not there."""

    kind = "device"
    exit_code = 3


class DataError(SparkgpuError):
    """The table cannot be read, or nothing can be learned from it as it stands."""

    kind = "data"
    exit_code = 4


class TrialError(SparkgpuError):
    """A trial or a lane failed after the data was accepted."""

    kind = "trial"
    exit_code = 5


class ExecutorLostError(TrialError):
    """An executor of a Spark cluster went away, and with it the H2O cloud and the network's ranks."""

    kind = "lost"


class NoticeToStop(KeyboardInterrupt):
    """A batch system's word that the run's time is nearly over: like Ctrl-C, but networks are saved first."""


_BY_KIND: dict[str, type[SparkgpuError]] = {
    error.kind: error for error in (ConfigError, DeviceError, DataError, TrialError, ExecutorLostError)
}


def error_of_kind(kind: str, message: str) -> SparkgpuError:
    """Rebuild in the parent what a worker process wrote to ``error.json``."""
    return _BY_KIND.get(kind, TrialError)(message)


def described(error: BaseException) -> dict[str, str]:
    """An error as ``error.json`` holds it: kind, and one line for the user."""
    if isinstance(error, SparkgpuError):
        return {"kind": error.kind, "message": str(error)}
    lines = str(error).strip().splitlines()
    return {"kind": "trial", "message": f"{type(error).__name__}: {lines[0] if lines else 'no message'}"}
