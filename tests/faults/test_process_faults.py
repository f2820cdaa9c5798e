"""Each kind of process of a run is killed, asked to end, and stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import pytest
from injected import CASE_S, OPTIONS, Metrics, Outcome, injected
from running import COMMAND, until
from standalone import Cluster, spark_environment

from sparkgpu.core.rundir.files import read_json

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(CASE_S)]

Whole = Callable[..., Metrics]

# A stopped network is missed after 25 s.
SOON = ("--set", "neural.rank_timeout_s=5", "--set", "neural.epochs=20")
GANG = (*SOON, "--cpu-lanes", "2", "--strategy", "ddp", "--repeats", "1", "--set", "trees.engine=xgboost")
HUNG = "hung: nothing done for"
AGAIN = "started again from the last checkpoint: "

WORKER: dict[str, dict[signal.Signals, tuple[Outcome, int, str]]] = {
    "tree worker": {
        SIGKILL: ("resumable", 5, "the trees worker was killed by signal 9"),
        SIGTERM: ("finished", 0, ""),
        SIGSTOP: ("finished", 0, f"trees: {HUNG}"),
    },
    "neural worker": {
        SIGKILL: ("resumable", 5, "the neural worker was killed by signal 9"),
        SIGTERM: ("finished", 0, ""),
        SIGSTOP: ("finished", 0, f"neural: {HUNG}"),
    },
    "JVM": {
        SIGKILL: ("resumable", 5, "its Java ended or does not answer"),
        SIGTERM: ("resumable", 5, "its Java ended or does not answer"),
        SIGSTOP: ("finished", 0, f"trees: {HUNG}"),
    },
}


@pytest.mark.parametrize(
    ("role", "phase"),
    [
        *(("tree worker", phase) for phase in ("preparation", "training", "prediction")),
        *(("neural worker", phase) for phase in ("start", "training", "prediction")),
        *(("JVM", phase) for phase in ("start", "writing the table", "training")),
    ],
)
@pytest.mark.parametrize("number", [SIGKILL, SIGTERM, SIGSTOP], ids=lambda number: number.name)
def test_a_worker_or_its_jvm(
    role: str, number: signal.Signals, phase: str, wine: Path, undisturbed: Whole, tmp_path: Path
) -> None:
    outcome, code, said = WORKER[role][number]
    with injected(f"{number.name} of the {role}", phase, wine, tmp_path, *SOON) as case:
        process = case.process(role)  # before, since a phase may be over soon
        case.reach(phase, "neural" if role == "neural worker" else "trees")
        case.send(number, process)
        if (role, phase) == ("JVM", "start") and code:
            code, said = 3, "the Java in .* ended with status .* before Spark was up"
        case.ends(outcome, code=code, said=said, whole=lambda: undisturbed(*SOON))


@pytest.mark.parametrize("phase", ["reading the source", "fitting the feature pipeline", "writing the table"])
@pytest.mark.parametrize("number", [SIGKILL, SIGTERM, SIGSTOP], ids=lambda number: number.name)
def test_a_python_worker_of_spark(number: signal.Signals, phase: str, parted: Path, tmp_path: Path) -> None:
    with injected(f"{number.name} of Spark's Python worker", phase, parted, tmp_path, *SOON) as case:
        case.reach(phase)
        case.send(number, case.process("Python worker of Spark", newest=True))
        if phase == "writing the table":  # such a small one is written elsewhere, so the worker is idle
            case.ends("finished", code=0)
        elif number is SIGSTOP:
            case.ends("finished", code=0, said=f"trees: {HUNG}")
        else:
            case.ends("refused", code=5, said="a Python worker of Spark was killed")


@pytest.mark.parametrize("phase", ["start", "training", "prediction"])
@pytest.mark.parametrize("number", [SIGKILL, SIGTERM, SIGSTOP], ids=lambda number: number.name)
def test_a_rank_of_a_gang(number: signal.Signals, phase: str, wine: Path, tmp_path: Path) -> None:
    with injected(f"{number.name} of a rank", phase, wine, tmp_path, *GANG) as case:
        case.reach("reading" if phase == "start" else phase, "neural")
        case.process("rank")
        case.send(number, case.processes("rank")[-1])
        # While one is stopped the others wait for it, so the run may miss them all before their watcher does.
        again = f"{AGAIN}|{HUNG}.*once more" if number == SIGSTOP else AGAIN
        case.ends("finished", code=0, said="" if phase == "prediction" else again)


@pytest.mark.parametrize("phase", ["start", "training", "prediction"])
@pytest.mark.parametrize("number", [SIGKILL, SIGSTOP], ids=lambda number: number.name)
def test_the_agent_of_a_gang(
    number: signal.Signals, phase: str, wine: Path, undisturbed: Whole, tmp_path: Path
) -> None:
    with injected(f"{number.name} of torchrun's agent", phase, wine, tmp_path, *GANG) as case:
        case.reach("reading" if phase == "start" else phase, "neural")
        case.process("rank")
        outcome, code, said = WORKER["neural worker"][number]
        case.send(number, case.process("neural worker"))
        case.ends(outcome, code=code, said=said, whole=lambda: undisturbed(*GANG))


@pytest.mark.parametrize("phase", ["preparation", "training", "report"])
@pytest.mark.parametrize("who", ["the run", "all its processes at once"])
def test_the_run_itself_is_killed(
    who: str, phase: str, wine: Path, undisturbed: Whole, tmp_path: Path
) -> None:
    """All at once as by systemd or Slurm, when one process of theirs is out of memory or time."""
    with injected(f"SIGKILL of {who}", phase, wine, tmp_path, *SOON) as case:
        case.reach(phase)
        case.send_to(SIGKILL, who)
        case.ends("resumable", code=-9, whole=lambda: undisturbed(*SOON))


@pytest.mark.parametrize("phase", ["preparation", "training", "report"])
@pytest.mark.parametrize("who", ["the run", "all its processes at once"])
def test_the_run_is_asked_to_end(
    who: str, phase: str, wine: Path, undisturbed: Whole, tmp_path: Path
) -> None:
    long = (*SOON, "--set", "neural.epochs=2000", "--set", "neural.checkpoint_minutes=10")
    with injected(f"SIGTERM of {who}", phase, wine, tmp_path, *long) as case:
        case.reach(phase, "neural" if phase == "training" else "trees")
        case.send_to(SIGTERM, who)
        if phase == "preparation":
            case.ends("refused", code=130, said="there was no table yet, so the run's folder was removed")
            return
        case.ends("resumable", code=130, said="goes on from here", whole=lambda: undisturbed(*long))
        if phase == "training":  # no checkpoint was due yet
            notes = read_json(case.run.paths.trial("neural-s7").fit)["notes"]
            assert notes[0].startswith("resumed from a checkpoint after epoch ")


@pytest.mark.parametrize("phase", ["preparation", "training", "report"])
def test_the_run_is_stopped_and_goes_on_as_after_sleep(phase: str, wine: Path, tmp_path: Path) -> None:
    with injected("SIGSTOP, and SIGCONT 20 s later, of the run", phase, wine, tmp_path, *SOON) as case:
        case.reach(phase)
        run = case.process("run")
        case.send(SIGSTOP, run)
        time.sleep(20)
        run.send_signal(SIGCONT)
        case.ends("finished", code=0)


NEAR = (
    "--set", "cluster.executors=2", "--set", "cluster.spark.executor.memory=1g", "--set", "hang_after_s=8",
)  # fmt: skip
DRIVER = {
    SIGKILL: "the driver was killed by signal 9.*; once more", SIGTERM: "",
    SIGSTOP: "the driver hung.*; once more",
}  # fmt: skip
EXECUTOR = {
    SIGKILL: r"executor \d on \S+ was lost", SIGTERM: r"executor \d on \S+ was lost", SIGSTOP: "once more",
}  # fmt: skip


@pytest.mark.parametrize("phase", ["preparation", "training", "prediction"])
@pytest.mark.parametrize("number", [SIGKILL, SIGTERM, SIGSTOP], ids=lambda number: number.name)
@pytest.mark.parametrize("role", ["driver", "executor"])
def test_a_process_of_a_cluster(
    role: str, number: signal.Signals, phase: str, wine: Path, cluster: Cluster, tmp_path: Path
) -> None:
    until(lambda: not cluster.executors(), "the executors before have gone", 60)
    options = (*OPTIONS[:2], *OPTIONS[4:], *NEAR, "--set", f"cluster.master={cluster.url}")  # no CPU lanes
    with injected(
        f"{number.name} of a cluster's {role}", phase, wine, tmp_path,
        command=[*COMMAND, "run", wine, *options], environ=spark_environment(),
    ) as case:  # fmt: skip
        workers = [worker.pid for worker in cluster.workers]
        process = case.process(role, workers)
        case.reach(phase)
        case.send(number, process)
        said = (DRIVER if role == "driver" else EXECUTOR)[number]
        # A second start alone takes 40 s, and 100 s on two busy cores.
        case.ends("finished", code=0, said=said, within_s=300)
    until(lambda: not cluster.executors(), "the executors have gone", 60)
