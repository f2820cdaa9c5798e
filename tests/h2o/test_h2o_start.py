"""A class archive that cannot be built is said in one line."""

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
