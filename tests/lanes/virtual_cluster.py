"""A real Slurm on this machine: munged, slurmctld and two slurmd that act as two nodes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparkgpu.core.host.reservations import reserved_ports

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED")

_SLURM_CONF = """
ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge.socket,cred_expire=10
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
InactiveLimit=0
KillWait=5
MinJobAge=600
SchedulerParameters=batch_sched_delay=0,sched_interval=2
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=4 RealMemory=4000 Gres=gpu:2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=4 RealMemory=4000 Gres=gpu:2
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=60 State=UP
"""


def why_not() -> str | None:
    """Why no Slurm can be started here; None if one can."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if missing:
        return f"no {missing[0]} on this machine: apt-get install slurm-wlm munge brings a Slurm to test with"
    if os.geteuid() != 0:
        return "the daemons of a test's own Slurm need root"
    return None


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The running cluster; its commands need `environ`."""

    root: Path
    environ: dict[str, str]

    def ask(self, *command: str) -> str:
        return subprocess.run(
            command, env=self.environ, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def job(self, number: str) -> dict[str, str]:
        words = self.ask("scontrol", "show", "job", "--oneliner", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(
        self, number: str, within_s: float, until: Callable[[dict[str, str]], bool] | None = None
    ) -> str:
        """Wait until the job ends, or `until` is true. Returns its state."""
        deadline = time.monotonic() + within_s
        while True:
            found = self.job(number)
            if until(found) if until else found["JobState"] in _ENDED:
                return found["JobState"]
            if time.monotonic() > deadline:
                log = Path(found["StdOut"])
                said = log.read_text(encoding="utf-8", errors="replace")[-4000:] if log.exists() else "no log"
                raise AssertionError(
                    f"not within {within_s:g} s: job {number} is {found['JobState']}\n{said}"
                )
            time.sleep(0.3)


@contextmanager
def virtual_cluster(root: Path) -> Iterator[Cluster]:
    """Start the daemons with their own ports, key and folders; end all of them, by id, after the block."""
    host = socket.gethostname().partition(".")[0]
    (root / "state").mkdir(parents=True)
    for node in ("n1", "n2"):
        (root / f"spool-{node}").mkdir()
    root.chmod(0o755)
    (root / "munge.key").write_bytes(os.urandom(128))
    (root / "munge.key").chmod(0o600)
    (root / "gres.conf").write_text("NodeName=n[1-2] Name=gpu File=/dev/tty[0-1]\n")
    environ = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))},
        "SLURM_CONF": str(root / "slurm.conf"),
        "PATH": os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")),
    }
    munged = (
        "munged", "--foreground", "--force", f"--socket={root}/munge.socket", f"--key-file={root}/munge.key",
        f"--pid-file={root}/munged.pid", f"--log-file={root}/munged.log", f"--seed-file={root}/munge.seed",
        "--num-threads=2",
    )  # fmt: skip
    with ExitStack() as stack:
        (port,) = stack.enter_context(reserved_ports(1))
        conf = _SLURM_CONF.format(host=host, root=root, controller=port, first=port + 1, second=port + 2)
        (root / "slurm.conf").write_text(conf)
        stack.enter_context(_daemon(munged, root / "munged.out", environ))
        _until((root / "munge.socket").exists, "munged", root)
        stack.enter_context(_daemon(("slurmctld", "-D", "-i"), root / "slurmctld.out", environ))
        for node in ("n1", "n2"):
            stack.enter_context(_daemon(("slurmd", "-D", "-N", node), root / f"slurmd-{node}.out", environ))
        cluster = Cluster(root=root, environ=environ)
        _until(lambda: _idle(cluster) == 2, "two idle nodes", root)
        try:
            yield cluster
        finally:
            for line in cluster.ask("squeue", "--noheader", "--format=%A").split():
                cluster.ask("scancel", line)
            _until(lambda: not cluster.ask("squeue", "--noheader").strip(), "an empty queue", root)


def _idle(cluster: Cluster) -> int:
    try:
        return cluster.ask("sinfo", "--noheader", "--Node", "--format=%t").split().count("idle")
    except subprocess.CalledProcessError:  # the controller is not up yet
        return 0


@contextmanager
def _daemon(command: tuple[str, ...], output: Path, environ: dict[str, str]) -> Iterator[None]:
    with output.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(condition: Callable[[], bool], what: str, root: Path, within_s: float = 40.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            ends = [f"{file.name}: {file.read_text()[-500:]}" for file in sorted(root.glob("*.out"))]
            raise AssertionError(f"no {what} within {within_s:g} s\n" + "\n".join(ends))
        time.sleep(0.2)
