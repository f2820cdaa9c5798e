"""The end of a run: the report follows the result, takes the time that is left, and says what it lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkgpu.cli.results import report
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.runs.reporting import make_report

MakeRun = Callable[..., RunPaths]


@pytest.mark.usefixtures("undrawn")
def test_a_short_report_needs_neither_profile_nor_explanations(run_directory: MakeRun) -> None:
    paths = run_directory()
    page, notes = make_report(paths, full=False)
    assert page.is_file()
    assert notes == ()
    assert not paths.profile.exists()
    assert not paths.explanations.exists()


def test_the_command_says_where_the_report_lies_to_people_and_to_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").touch()  # a run without results has a page, too
    page = str(tmp_path / "report" / "index.html")
    for as_json in (False, True):
        report(tmp_path, as_json=as_json)
        said = capsys.readouterr().out
        if as_json:
            assert json.loads(said) == {"page": page, "notes": []}
        else:
            assert said == f"{page}\n"


@pytest.mark.usefixtures("undrawn")
def test_without_time_the_models_are_not_explained_and_the_report_says_so(run_directory: MakeRun) -> None:
    paths = run_directory()
    page, notes = make_report(paths, full=True, left_s=1.0)
    assert page.is_file()
    expected = (
        "the time limit left no time to explain the models; `sparkgpu report` on the run's folder does it"
    )
    assert expected in notes
    assert not paths.explanations.exists()


@pytest.mark.process
@pytest.mark.usefixtures("undrawn")
def test_explanations_that_fail_cost_only_their_section(run_directory: MakeRun) -> None:
    paths = run_directory()  # its trials hold no models
    page, notes = make_report(paths, full=True)
    assert page.is_file()
    log = paths.root / "explain.log"
    assert f"the report lacks the explanations of the models; {log} says why" in notes
    assert log.read_text().startswith("sparkgpu: ")
