"""The parent's path stays light: code that a user waits for imports no Spark, H2O, torch or pandas."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparkgpu

HEAVY = {"torch", "pyspark", "py4j", "h2o", "ai", "pysparkling", "pandas", "sklearn", "scipy", "matplotlib"}

# At its end a process reports its imports on the last line of standard error.
REPORT = """
import atexit, json, sys
atexit.register(lambda: sys.stderr.write("\\n" + json.dumps(list(sys.modules))))
"""


def imported_by(code: str) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-c", REPORT + code], capture_output=True, text=True, timeout=60, check=False
    )
    modules: list[str] = json.loads(found.stderr.splitlines()[-1])
    return {name.partition(".")[0] for name in modules}


def test_no_module_of_another_package_is_replaced() -> None:
    replaced = re.compile(r"(del\s+)?sys\.modules\[.*?\](?(1)|\s*=[^=])")
    texts = {file: file.read_text(encoding="utf-8") for file in Path(sparkgpu.__file__).parent.rglob("*.py")}
    assert [file for file, text in texts.items() if replaced.search(text)] == []


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["run", "--bogus"]])
def test_help_needs_nothing_heavy(arguments: list[str]) -> None:
    found = imported_by(f"from sparkgpu.cli import main; main({arguments!r})")
    assert "typer" in found
    assert found & (HEAVY | {"numpy", "pyarrow"}) == set()


def test_importing_the_package_imports_nothing_but_itself() -> None:
    found = imported_by("import sparkgpu; assert sparkgpu.__version__")
    assert found & (HEAVY | {"numpy", "pyarrow", "pydantic", "typer", "rich"}) == set()


@pytest.mark.process
def test_the_python_door_and_the_orchestration_need_nothing_heavy() -> None:
    found = imported_by("import sparkgpu; sparkgpu.run; import sparkgpu.runs.run, sparkgpu.lanes.launch")
    assert "pydantic" in found
    assert found & HEAVY == set()


def test_an_attribute_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sparkgpu' has no attribute 'rum'"):
        sparkgpu.rum  # noqa: B018
