"""The notebooks run as they are, and hold outputs that code hosts can show."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from running import REPOSITORY

FOLDER = REPOSITORY / "notebooks"
NAMES = ("quickstart", "reading_a_run", "several_devices", "spark_to_deployed", "trusting_a_prediction")
MOST_BYTES = 300_000


def test_these_are_all_notebooks() -> None:
    assert tuple(sorted(file.stem for file in FOLDER.glob("*.ipynb"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_holds_the_outputs_of_one_run_is_small_and_points_to_files_that_exist(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    assert len(text.encode()) < MOST_BYTES
    assert re.findall(r"/(?:tmp|home|root|work|Users)/", text) == []  # paths of the machine that ran it
    found = json.loads(text)["cells"]
    cells = [cell for cell in found if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs and not any(output["output_type"] == "error" for output in outputs)
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert kinds <= {"text/plain", "text/html", "image/png"}  # what every code host shows
    pages = "".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)
    assert "<script" not in pages
    said = "".join("".join(cell["source"]) for cell in found if cell["cell_type"] == "markdown")
    for link in re.findall(r"\]\(([^)#]+)\)", said):
        assert (FOLDER / link).is_file(), link


@pytest.mark.spark
@pytest.mark.parametrize(
    "name", ["quickstart", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]
)
def test_a_notebook_runs_as_it_is(name: str, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), name],
        capture_output=True, text=True, cwd=tmp_path, timeout=280,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-4000:]
    assert found.stdout.startswith(f"{name}: ")


def test_a_notebook_that_does_not_exist_is_refused_with_the_names_of_those_that_do(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), "quick"], capture_output=True, text=True, cwd=tmp_path
    )
    assert found.returncode == 2
    assert found.stderr.endswith(f"there is no notebook quick; choose from {', '.join(NAMES)}.\n")
