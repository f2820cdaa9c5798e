"""How a lane's JVM is started: the only place with its flags and their reasons.

Spark's own launcher starts a JVM to print a command that starts a JVM. Built here, the command always has the
same class path (the class archive needs that), and the JVM ends with its parent. The measured effect of the
flags is in benchmarks/results/2026-11-start-up.md.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import resource
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sparkgpu.core.errors import DeviceError, described, error_of_kind
from sparkgpu.core.host.java import find_java
from sparkgpu.core.host.processes import die_with_parent, reap
from sparkgpu.core.rundir.files import write_bytes

_START_TIMEOUT_S = 120.0
_LOOK_S = 0.01
_ROOM_S = 1.0  # more writing would look like work of a JVM that hangs
_END_S = 5.0
_LEAST_FILES = 350  # most of them jars
_JDBC_DRIVERS = ("derby-", "hive-jdbc-")
_LIBRARIES_OF_JAVA = ("/usr/java/packages/lib", "/usr/lib64", "/lib64", "/lib", "/usr/lib")
NATIVE_LIBRARY = "libxgboost4j_gpu.so"
"""H2O's XGBoost with threads; it trains on GPUs and on the CPU."""

# JDK packages that Spark 3.5 opens by reflection on Java 17 (JavaModuleOptions of its launcher).
_OPENED = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io",
    "java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.base/sun.nio.cs", "java.base/sun.security.action", "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)  # fmt: skip

H2O_SETTINGS = (
    "-Dsys.ai.h2o.heartbeat.benchmark.enabled=false",
    "-Dsys.ai.h2o.xgboost.monotonicity.checkEnabled=false",
    "-Dsys.ai.h2o.xgboost.interactions.checkEnabled=false",
)
"""Stops H2O from measuring the machine's speed on all cores during its first half minute.

And from its own check of the rules of a model, after which H2O 3.46 fails to read the native metric.
"""

UTF8 = "-Dfile.encoding=UTF-8"
"""The letters of files whose reader names none, such as H2O's ``PredictCsv``, in every locale."""

FASTER_ARROW = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
"""Skips Arrow's bounds checks, which take a tenth of the time; Spark already respects the bounds."""

FRONT_JAR = Path(__file__).parent / "jars" / "front.jar"
"""Our own classes, which `sparkgpu.h2o.build_jar` compiles from the sources beside it."""


@dataclass(frozen=True, kw_only=True)
class JvmSettings:
    """One JVM: heap in bytes, the number of processors it may use, and a private folder for its files."""

    heap_bytes: int
    threads: int
    scratch: Path
    class_path: Sequence[str] = ()


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise DeviceError(f"the Python package {name} is not installed; run `pip install 'sparkgpu[h2o]'`.")
    return Path(spec.origin).parent


def class_path() -> list[str]:
    """Our own classes, Sparkling Water's assembly, then Spark's jars, always in the same order.

    Because the assembly is here, Sparkling Water does not copy its 240 MB into Spark's file server at each
    start. JDBC drivers are left out, since H2O's published holes need them.
    """
    jars = sorted(
        str(path)
        for path in (_package_folder("pyspark") / "jars").glob("*.jar")
        if not path.name.startswith(_JDBC_DRIVERS)
    )
    return [str(FRONT_JAR), *jars, str(assembly_jar())]


def assembly_jar() -> Path:
    """The jar of Sparkling Water with all its dependencies."""
    return _package_folder("sparkling_water") / "sparkling_water_assembly.jar"


def catalog_class_path() -> list[str]:
    """More class path for a local table catalog: its database, and the user's site configuration."""
    jars = sorted((_package_folder("pyspark") / "jars").glob("*.jar"))
    found = [str(path) for path in jars if path.name.startswith(_JDBC_DRIVERS)]
    return [*found, os.environ["SPARK_CONF_DIR"]] if os.environ.get("SPARK_CONF_DIR") else found


def archive_path(java_home: Path) -> Path:
    """The path of the class archive for this Java and class path (it may not exist)."""
    return kept(f"classes-{digest_of(java_home, *map(Path, class_path()))}.jsa")


def native_library() -> Path:
    """The path of H2O's XGBoost library, unpacked once for all runs (it may not exist).

    Each JVM would otherwise unpack its 150 MB anew, which takes 1.4 s of a processor. H2O looks in
    ``java.library.path`` before its jar, so a JVM without the kept copy works, too.
    """
    return kept(f"library-{digest_of(assembly_jar())}") / NATIVE_LIBRARY


def digest_of(*files: Path) -> str:
    """A name of everything that must match, so that what was made for another version is never found."""
    digest = hashlib.sha256()
    for file in files:
        stat = file.stat()
        digest.update(f"{file}:{stat.st_size}:{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def kept(name: str) -> Path:
    """Where later starts find it: beside its packages if that folder is writable, else in a cache."""
    shared = Path(sys.prefix) / "share" / "sparkgpu" / name
    if shared.exists() or os.access(sys.prefix, os.W_OK):
        return shared
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "sparkgpu" / name


def jvm_command(java_home: Path, settings: JvmSettings, main_class: str) -> list[str]:
    """The command line of a JVM. It never contains a secret, since other users can read command lines."""
    options = [
        f"-Xmx{settings.heap_bytes // 2**20}m",
        # On few processors the serial collector: it has no threads that compete with XGBoost and torch.
        "-XX:+UseSerialGC" if settings.threads <= 2 else "-XX:+UseParallelGC",
        f"-XX:ActiveProcessorCount={settings.threads}",
        # Only the quick compiler: a lane lives for seconds to minutes, and its hot loops are native.
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Xss4m",
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        "-Djdk.reflect.useDirectMethodHandle=false",
        # Sparkling Water's REST client uses this package of the JDK.
        "--add-exports=java.base/sun.net.www.protocol.http=ALL-UNNAMED",
        *H2O_SETTINGS,
        f"-Djava.io.tmpdir={settings.scratch}",
        "-Djava.net.preferIPv4Stack=true",
        *FASTER_ARROW,
        UTF8,
        "-Duser.timezone=UTC",
        f"-Dlog4j2.configurationFile={Path(__file__).parent / 'jars' / 'log4j2.properties'}",
        f"-Dh2o.log4j.configuration=file:{Path(__file__).parent / 'jars' / 'log4j.properties'}",
    ]
    archive = archive_path(java_home)
    if archive.exists():
        options += [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off"]
    if (library := native_library()).exists():
        own = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        folders = [str(library.parent), *filter(None, own), *_LIBRARIES_OF_JAVA]
        options.append(f"-Djava.library.path={os.pathsep.join(folders)}")
    # For experts, and for building the archive; lanes do not get Java's own variables.
    options += os.environ.get("SPARKGPU_JVM_OPTIONS", "").split()
    path = os.pathsep.join([*class_path(), *settings.class_path])
    return [str(java_home / "bin" / "java"), *options, "-cp", path, main_class]


class Gateway(NamedTuple):
    """Where a JVM listens for py4j, on loopback, and the secret that it asks for."""

    port: int
    secret: str


@contextmanager
def jvm(
    settings: JvmSettings, *, address: str = "127.0.0.1", meanwhile: Callable[[], None] = lambda: None
) -> Iterator[Gateway]:
    """A JVM with Spark's py4j server that ends with the block; `meanwhile` is called while it starts.

    Spark binds to `address`. Call it from the main thread: the kernel ends the JVM with the thread that
    started it. The JVM prints to this process's output. Raises `DeviceError` if Java is missing, or if the
    JVM ends early or does not start in time, and a `SparkgpuError` for an error of the JVM in the block.
    """
    from py4j.protocol import Py4JError

    java_home = find_java(os.environ)
    settings.scratch.mkdir(parents=True, exist_ok=True)
    if (files := resource.getrlimit(resource.RLIMIT_NOFILE)[1]) < _LEAST_FILES:
        raise DeviceError(
            f"this shell allows {files} open files, and Spark and H2O need {_LEAST_FILES}. Raise its limit, "
            "which `ulimit -Hn` shows."
        )
    if os.statvfs(settings.scratch).f_flag & os.ST_NOEXEC:
        raise DeviceError(
            f"{settings.scratch}: its disk is mounted noexec, and Spark and H2O load libraries from there. "
            "Set TMPDIR to a folder on another disk."
        )
    info = settings.scratch / f"gateway-{os.getpid()}"
    process = subprocess.Popen(
        jvm_command(java_home, settings, "org.apache.spark.api.python.PythonGatewayServer"),
        stdin=subprocess.PIPE,
        env={
            **os.environ,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(_package_folder("pyspark")),
            "SPARK_LOCAL_IP": address,
        },
        preexec_fn=_follow_parent,  # noqa: PLW1509  no other thread forks here, and it only sets signals
    )
    try:
        meanwhile()
        yield _gateway(process, info, java_home)
    except Py4JError as error:  # while the JVM can still describe the error
        traceback.print_exc()
        found = described(error)
        raise error_of_kind(found["kind"], found["message"]) from None
    finally:
        assert process.stdin is not None
        process.stdin.close()  # which ends it
        try:
            process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            reap(process)


def _gateway(process: subprocess.Popen[bytes], info: Path, java_home: Path) -> Gateway:
    deadline, room_at = time.monotonic() + _START_TIMEOUT_S, 0.0
    while not info.exists():
        if process.poll() is not None:
            raise DeviceError(
                f"the Java in {java_home} ended with status {process.returncode} before Spark was up; its "
                "last output is in the lane's log."
            )
        if time.monotonic() > deadline:
            raise DeviceError(f"the Java in {java_home} did not start Spark within {_START_TIMEOUT_S:.0f} s.")
        if time.monotonic() > room_at:
            _check_room(info.parent)
            room_at = time.monotonic() + _ROOM_S
        time.sleep(_LOOK_S)
    data = info.read_bytes()  # complete, since Spark writes it under another name and renames it
    info.unlink()
    port, length = struct.unpack_from("!ii", data)
    return Gateway(port, data[8 : 8 + length].decode())


def _check_room(folder: Path) -> None:
    """Raise OSError if no file can be written: then Spark tells nobody where it listens, and lives on."""
    probe = folder / f"room-{os.getpid()}"
    write_bytes(probe, b" ")
    probe.unlink()


def _follow_parent() -> None:
    """Runs in the child before Java."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    die_with_parent()  # its standard input closes then, too, but a forked sibling can keep that pipe open
