"""The errors that a user can meet, each with its documented exit code.

A message is one or two sentences: what was asked, what was found, what to do. The terminal shows only the
text of these errors. Any other error is a defect of ours and keeps its traceback, in the lane's log and never
on the terminal.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_DONE = 0
EXIT_INTERRUPTED = 130


class SparkgpuError(ValueError):
    """Base of all these errors; `kind` names it in ``error.json``, `exit_code` is that of the process."""

    kind: ClassVar[str] = "trial"
    exit_code: ClassVar[int] = 5


class ConfigError(SparkgpuError):
    """The configuration or the command line asks for something that does not exist."""

    kind = "configuration"
    exit_code = 2


class DeviceError(SparkgpuError):
    """A device, Java or another required part of the environment is missing."""

    kind = "device"
    exit_code = 3


class DataError(SparkgpuError):
    """The table cannot be read, or nothing can be learned from it in its present form."""

    kind = "data"
    exit_code = 4


class TrialError(SparkgpuError):
    """A trial or a lane failed after the data was accepted."""

    kind = "trial"
    exit_code = 5


class ExecutorLostError(TrialError):
    """An executor of a Spark cluster was lost, and with it the H2O cloud and the network's ranks."""

    kind = "lost"


class NoticeToStop(KeyboardInterrupt):
    """A batch system warns that the run's time is nearly over: like Ctrl-C, but networks are saved first."""


_BY_KIND: dict[str, type[SparkgpuError]] = {
    error.kind: error for error in (ConfigError, DeviceError, DataError, TrialError, ExecutorLostError)
}


def error_of_kind(kind: str, message: str) -> SparkgpuError:
    """Rebuild in the parent the error that a worker wrote to ``error.json``."""
    return _BY_KIND.get(kind, TrialError)(message)


def described(error: BaseException) -> dict[str, str]:
    """An error in the form of ``error.json``: its kind, and one line for the user."""
    if isinstance(error, SparkgpuError):
        return {"kind": error.kind, "message": str(error)}
    lines = [line.strip() for line in str(error).strip().splitlines()]
    what = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
    return {"kind": "trial", "message": f"{type(error).__name__}: {what or 'no message'}"}
