"""The examples of the public names run as they are, each after those that it builds on."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest

import sparkgpu
import sparkgpu.sklearn

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def run_examples(owner: Any, names: list[str]) -> None:
    """Run the docstrings of these names one after the other; what one defines, the next ones know."""
    known: dict[str, Any] = {}
    for name in names:
        found = doctest.DocTestParser().get_doctest(getattr(owner, name).__doc__, known, name, None, None)
        assert found.examples, f"{name} has no example"
        told: list[str] = []
        doctest.DocTestRunner(optionflags=FLAGS).run(found, out=told.append, clear_globs=False)
        assert told == [], "".join(told)
        known = found.globs


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(900)  # four runs and a refit
def test_the_examples_of_the_python_door_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["run", "load", "FittedModel", "read_run", "RunResult", "compare", "refit", "TargetsResult"]
    assert {*names, "__version__"} == {*sparkgpu.__all__}
    run_examples(sparkgpu, names)


@pytest.mark.process
@pytest.mark.parametrize("name", sparkgpu.sklearn.__all__)
def test_the_examples_of_the_estimators_run(name: str) -> None:
    run_examples(sparkgpu.sklearn, [name])


@pytest.mark.spark
@pytest.mark.slow
def test_the_examples_of_the_stages_of_spark_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    door = importlib.import_module("sparkgpu.spark")
    names = ["SparkgpuEstimator", "SparkgpuModel"]
    assert sorted(door.__all__) == names
    run_examples(door, names)
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate().stop()
