"""Java's start: without an account for the user, with an error, and without a class archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

JAVA = """\
#!/bin/sh
echo 'Error: this Java runs nothing' >&2; exit 1
"""


@pytest.mark.process
def test_a_class_archive_that_fails_is_a_line_and_a_status(tmp_path: Path) -> None:
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(JAVA)
    program.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.9"')
    environ = {**os.environ, "JAVA_HOME": str(tmp_path / "java"), "SPARKGPU_JAVA_FOLDERS": ""}
    ended = subprocess.run(
        [sys.executable, "-m", "sparkgpu.h2o.cds"], env=environ, capture_output=True, text=True, timeout=200
    )
    assert ended.returncode == 1
    assert ended.stdout.startswith(
        "sparkgpu: no class archive was built, so runs start a few seconds later ("
    )
    assert ended.stdout.count("\n") == 1


SESSION = """
import pwd, sys
from pathlib import Path
from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.reservations import reserved_ports
from sparkgpu.h2o.session import spark_session
def unknown(number): raise KeyError(number)
pwd.getpwuid = unknown
try:
    with reserved_ports(1) as (port,), spark_session(
        name="tests", threads=1, heap_bytes=2**30, scratch=Path(sys.argv[1]), port_base=port
    ) as session:
        print(session.sparkContext.sparkUser())
        session.sparkContext._jvm.java.lang.Class.forName("none")
except TrialError as error:
    print(error)
"""


@pytest.mark.spark
def test_a_user_without_an_account_has_a_session_whose_errors_are_told_when_java_has_ended(
    java: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SESSION, str(tmp_path / "scratch")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    user, error = ended.stdout.splitlines()[-2:]
    assert user == str(os.getuid())
    assert error == "java.lang.ClassNotFoundException: none"
