"""A Spark standalone cluster on this machine: a master and workers from the pip package, on loopback."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from running import REPOSITORY

from sparkgpu.core.host.java import find_java

QUICK_START = "-XX:TieredStopAtLevel=1"
"""The JVMs of tests live for seconds, in which the optimizing compiler costs more than it gains."""
_START_S = 60.0


def spark_environment() -> dict[str, str]:
    """The variables that env/activate.sh exports for spark-submit, none of a session in this process."""
    spec = importlib.util.find_spec("pyspark")
    assert spec
    assert spec.origin
    own = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS")
    return {
        **{key: value for key, value in os.environ.items() if key not in own},
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(Path(spec.origin).parent),
        "SPARK_CONF_DIR": str(REPOSITORY / "env" / "spark-conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": QUICK_START,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@dataclass(kw_only=True)
class Cluster:
    """The address of the master, the workers' processes, and the folder of their logs and applications."""

    url: str
    folder: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def submit(self, *arguments: object, conf: Sequence[str] = (), job: str = "train.py") -> list[str]:
        """The command line of ``spark-submit jobs/JOB`` on this cluster."""
        program = str(Path(sys.executable).with_name("spark-submit"))
        options = [part for setting in conf for part in ("--conf", setting)]
        return [
            program, "--master", self.url, "--conf", "spark.executor.memory=1g", *options,
            str(REPOSITORY / "jobs" / job), *map(str, arguments),
        ]  # fmt: skip

    def applications(self) -> set[Path]:
        """The folders of all applications so far, one on each worker that ran executors of it."""
        return set(self.folder.glob("worker-*/work/app-*"))

    def executors(self) -> list[int]:
        """The processes of applications that are alive below the workers, their ranks and JVMs."""
        workers = [worker.pid for worker in self.workers if worker.poll() is None]
        return [process.pid for pid in workers for process in _tree(pid) if _is_alive(process)]

    def kill_worker(self, index: int) -> None:
        """Kill one worker and its executors, as a power failure would."""
        worker = psutil.Process(self.workers[index].pid)
        for process in (worker, *worker.children(recursive=True)):
            _kill(process)


@contextmanager
def standalone(
    folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1200m", gpus: int = 0
) -> Iterator[Cluster]:
    """A cluster for the block. With `gpus`, each worker declares that many GPUs, which need not exist."""
    environment = spark_environment() | {"JAVA_TOOL_OPTIONS": QUICK_START}  # executors inherit it
    environment.pop("SPARK_CONF_DIR")
    program = Path(environment["SPARK_HOME"]) / "bin" / "spark-class"
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(program), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]],
                env={**environment, **variables}, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        processes.append(process)
        return process

    with ExitStack() as stack:
        stack.callback(_end, processes)
        start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        url = _awaited(folder / "master.log", r"Starting Spark master at (spark://\S+)", processes)
        cluster = Cluster(url=url, folder=folder)
        for index in range(workers):
            own = folder / f"worker-{index}"
            (own / "work").mkdir(parents=True)
            options = ""
            if gpus:
                script = own / "gpus.sh"
                addresses = ", ".join(f'"{number}"' for number in range(gpus))
                script.write_text(f'#!/bin/sh\necho \'{{"name": "gpu", "addresses": [{addresses}]}}\'\n')
                script.chmod(0o755)
                options = (
                    f"-Dspark.worker.resource.gpu.amount={gpus} "
                    f"-Dspark.worker.resource.gpu.discoveryScript={script}"
                )
            worker = start(
                f"worker-{index}", "worker.Worker", "--host", "127.0.0.1", "--cores", str(cores),
                "--memory", memory, "--work-dir", str(own / "work"), "--webui-port", "0", url,
                SPARK_WORKER_OPTS=options,
            )  # fmt: skip
            cluster.workers.append(worker)
        for index in range(workers):
            _awaited(folder / f"worker-{index}.log", r"Successfully registered with master", processes)
        yield cluster


def _awaited(log: Path, pattern: str, processes: Sequence[subprocess.Popen[bytes]]) -> str:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        if found := re.search(pattern, text):
            return found.group(found.re.groups)
        assert all(process.poll() is None for process in processes), text[-2000:]
        time.sleep(0.1)
    raise AssertionError(f"{log.name}: no {pattern!r} within {_START_S:.0f} s: {text[-2000:]}")


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in reversed(processes):
        for member in _tree(process.pid):
            _kill(member)
        process.kill()
        process.wait()


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):  # some end with their parent
        process.kill()


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _tree(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
