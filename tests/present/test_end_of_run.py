"""The end of a run: the report follows the result, takes the time that is left, and says what it lacks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.runs.reporting import make_report

MakeRun = Callable[..., RunPaths]


def test_a_short_report_needs_neither_profile_nor_explanations(run_directory: MakeRun) -> None:
    paths = run_directory()
    page, notes = make_report(paths, full=False)
    assert page.is_file()
    assert notes == ()
    assert not paths.profile.exists()
    assert not paths.explanations.exists()


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
def test_explanations_that_fail_cost_only_their_section(run_directory: MakeRun) -> None:
    paths = run_directory()  # its trials hold no models
    page, notes = make_report(paths, full=True)
    assert page.is_file()
    log = paths.root / "explain.log"
    assert f"the report lacks the explanations of the models; {log} says why" in notes
    assert log.read_text().startswith("sparkgpu: ")
