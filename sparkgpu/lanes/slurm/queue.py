"""Uses Slurm's own commands to submit scripts and show jobs. Works without job accounting."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sparkgpu.core.errors import ConfigError, DeviceError

_ANSWER_S = 120.0  # longer than the timeout of Slurm's own commands for their controller
_FIELD = re.compile(r"(?:^| )([A-Za-z:]+)=(\S*)")
_NO_CONTROLLER = re.compile(
    r"unable to contact|establish a configuration source|connection refused", re.IGNORECASE
)


def submit(script: Path) -> str:
    """Submit a script with sbatch. Returns the job's number. Raises `ConfigError` with sbatch's message."""
    found = _ask("sbatch", "--parsable", str(script))
    if found.returncode:
        raise ConfigError(f"{script}: sbatch refused it: {_last_line(found.stderr)}")
    return found.stdout.strip().partition(";")[0]


def objection(script: Path) -> str | None:
    """Slurm's objection to a script, without submitting it; None without objection or without Slurm."""
    try:
        found = _ask("sbatch", "--test-only", str(script))
    except DeviceError:
        return None
    return _last_line(found.stderr) if found.returncode else None


def own_jobs() -> list[str]:
    """The numbers of this user's waiting and running jobs that come from our scripts."""
    found = _ask("squeue", "--me", "--noheader", "--format=%A %j")
    if found.returncode:
        raise DeviceError(f"squeue: {_last_line(found.stderr)}")
    lines = (line.split(maxsplit=1) for line in found.stdout.splitlines())
    return [number for number, name in lines if name.startswith("sparkgpu-")]


def job(number: str) -> dict[str, str]:
    """A job by Slurm's names. Raises `ConfigError` for a job that Slurm does not know (any more)."""
    found = _ask("scontrol", "show", "job", "--oneliner", number)
    if found.returncode:
        raise ConfigError(
            f"job {number}: {_last_line(found.stderr)}. Slurm forgets a job some minutes after its end; "
            "its log and its run directory remain."
        )
    return dict(_FIELD.findall(found.stdout))


def in_words(job: Mapping[str, str]) -> str:
    """A job's state in one line."""
    parts = [f"{job['JobId']} {job['JobName']}: {job['JobState']}"]
    if job.get("NodeList") not in (None, "", "(null)"):
        parts[0] += f" on {job['NodeList']}"
    parts.append(job["RunTime"])
    if job["JobState"] == "PENDING":
        parts.append(f"waits for {job.get('Reason')}")
    elif job["JobState"] != "RUNNING":
        parts.append(f"exit code {job['ExitCode'].partition(':')[0]}")
    if job["Restarts"] != "0":
        parts.append(f"started again {job['Restarts']} times")
    return f"{', '.join(parts)}; log {job.get('StdOut', '')}"


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        raise DeviceError(
            f"{command[0]}: not found here. Run this on a login node, where Slurm's commands are."
        )
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_ANSWER_S
        )
    except subprocess.TimeoutExpired:
        raise DeviceError(
            f"{command[0]}: no answer within {_ANSWER_S:.0f} s. Check that Slurm is up, then try again."
        ) from None
    if found.returncode and _NO_CONTROLLER.search(found.stderr):
        raise DeviceError(
            f"{command[0]}: no Slurm controller answers here ({_last_line(found.stderr)}). Run this on a "
            "login node of the cluster; if this is one, check that Slurm is up."
        )
    return found


def _last_line(text: str) -> str:
    lines = text.strip().splitlines() or ["it gave no reason"]
    return re.sub(r"^\w+:? (fatal|error): ", "", lines[-1].strip()).rstrip(".")
