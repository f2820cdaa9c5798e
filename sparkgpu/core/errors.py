"""The errors that a user can meet, each with its documented exit code.

A message is one or two sentences: what was asked, what was found, what to do. The terminal shows only the
text of these errors. Any other error is a defect of ours and keeps its traceback, in the lane's log and never
on the terminal.
"""

from __future__ import annotations

import re
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

    message: ClassVar[str] = "interrupted by a notice that its time is nearly over"
    save_within_s: ClassVar[float] = 120.0
    """Less than the notice period in the scripts of `sparkgpu slurm write`."""


class AskedToEnd(NoticeToStop):
    """SIGTERM, from a shell or a batch system. Slurm kills what is left 30 s later."""

    message = "interrupted by SIGTERM"
    save_within_s = 20.0


_BY_KIND: dict[str, type[SparkgpuError]] = {
    error.kind: error for error in (ConfigError, DeviceError, DataError, TrialError, ExecutorLostError)
}


def error_of_kind(kind: str, message: str) -> SparkgpuError:
    """Rebuild in the parent the error that a worker wrote to ``error.json``."""
    return _BY_KIND.get(kind, TrialError)(message)


_FAULTS_OF_THE_MACHINE: tuple[tuple[type[SparkgpuError], str, str], ...] = (
    (
        DeviceError, "no space left|disk quota exceeded",
        "the disk is full{where}. Free some space, or choose folders on another disk with --out and TMPDIR.",
    ),
    (
        DeviceError, "read-only file system|permission denied|input/output error|stale file handle",
        "{words}{where}. Mend it, or choose other folders with --out and TMPDIR.",
    ),
    (
        DeviceError, "file too large",
        "{words}{where}: it is beyond the limit of this shell. Raise that with `ulimit -f`.",
    ),
    (
        DeviceError, "too many open files",
        "{words}{where}: it is beyond the limit of this shell. Raise that with `ulimit -n 4096`.",
    ),
    (
        DeviceError, "resource temporarily unavailable|can't start new thread|unable to create native thread",
        "no further process or thread can start. Raise the limit with `ulimit -u`, or that of the container.",
    ),
    (
        DeviceError, "surrogates not allowed",
        "a path has letters that this locale cannot name. Set LC_ALL=C.UTF-8, and unset PYTHONUTF8.",
    ),
    (
        DeviceError, "address already in use|bindexception",
        "another program took a port that this run had just found free. Start the run again.",
    ),
    (
        TrialError,
        r"\A(?!.*(cuda|\.cuh)).*(memoryerror|java.lang.outofmemory|can(no|')t allocate memory|bad_alloc)",
        "the memory is exhausted. End other programs, ask for fewer lanes, or use another machine.",
    ),
    (
        TrialError,
        "py4jnetworkerror|connectionrefusederror|h2oconnectionerror|calling none|does not exist in the jvm",
        "its Java ended or does not answer (killed, out of memory?); the lane's log says more.",
    ),
    (
        TrialError,
        "python worker exited unexpectedly|from pyspark.daemon's stdout"
        r"|connection reset(\s+at java\S+)*\s+at org\.apache\.spark\.api\.python",
        "a Python worker of Spark was killed (out of memory?); the lane's log says more.",
    ),
)  # fmt: skip
"""By the words of the error, which Python, Java and native libraries take from the same C library."""


def fault_of_machine(error: BaseException) -> SparkgpuError | None:
    """The refusal that says so, if an error means a disk, memory or a limit rather than a defect of ours."""
    file = getattr(error, "filename", None)
    for kind, words, sentence in _FAULTS_OF_THE_MACHINE:
        if found := re.search(words, f"{type(error).__name__}: {error}", re.IGNORECASE | re.DOTALL):
            return kind(sentence.format(words=found[0].lower(), where=f" ({file})" if file else ""))
    return None


def described(error: BaseException) -> dict[str, str]:
    """An error in the form of ``error.json``: its kind, and one line for the user."""
    found = error if isinstance(error, SparkgpuError) else fault_of_machine(error)
    if found is not None:
        return {"kind": found.kind, "message": str(found)}
    lines = [line.strip() for line in str(error).strip().splitlines()]
    if lines[1:] and lines[1].startswith(": "):  # of Java, below the call from Python
        return {"kind": "trial", "message": lines[1].removeprefix(": ")}
    what = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
    return {"kind": "trial", "message": f"{type(error).__name__}: {what or 'no message'}"}
