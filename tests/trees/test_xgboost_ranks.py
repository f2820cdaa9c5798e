"""Ranks of XGBoost that grow one model, each in a process of its own with its share of the rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_trees import COLORS, Table, outcome, planned, table, waves

from sparkgpu.core.errors import TrialError
from sparkgpu.core.rundir.events import EventReader
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.neural.launchers.gang import train_in_attempts
from sparkgpu.trees.xgboost_ranks import meeting
from sparkgpu.trials.engine import Platform, make_engine

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

FINE: dict[str, Any] = {
    "ntrees": 40, "max_depth": 4, "learn_rate": 0.2, "reg_lambda": 1.0, "early_stopping_rounds": 10,
}  # fmt: skip


def by_ranks(
    planted: Table,
    folder: Path,
    until: float | None = None,
    meanwhile: Callable[[list[subprocess.Popen[bytes]]], None] = lambda ranks: None,
    **settings: Any,
) -> FitRecord:
    """The record of a trial of two ranks, as executors run them; `meanwhile` is called in each attempt."""
    trial = replace(planned(planted, "trees-s7", "xgboost", **{**FINE, **settings}), until=until)
    (folder / "scratch").mkdir(parents=True)

    def attempt(place: Path) -> None:
        with suppress(RuntimeError), meeting("127.0.0.1", 2) as where:
            arguments = [
                sys.executable, "-m", "sparkgpu.lanes.cluster.engine_rank", "--parent", str(os.getpid()),
                "--run-dir", str(planted.paths.root), "--attempt", str(place), "--place", json.dumps(where),
            ]  # fmt: skip
            ranks = [subprocess.Popen([*arguments, "--rank", str(rank)]) for rank in range(2)]
            meanwhile(ranks)
            ended = [process.wait() for process in ranks]
            if any(ended):
                raise RuntimeError

    return train_in_attempts(
        trial, folder / "gang", attempt, num_ranks=2, most_restarts=1, where="two processes"
    )


@pytest.mark.parametrize("task", ["regression", "multiclass"])
def test_two_ranks_grow_the_model_of_one(tmp_path: Path, task: str) -> None:
    random = np.random.default_rng(8)
    # Few values, so that no cut depends on which rows a rank has.
    steps_N, word_N = random.integers(0, 12, 4000).astype(float), random.choice(COLORS, 4000)
    steps_N[::7] = np.nan
    label_N = np.nan_to_num(steps_N) % 5 + (word_N == COLORS[0]) + random.normal(size=4000)
    if task == "multiclass":
        label_N = np.digitize(label_N, (1.5, 3.0))
    planted = table(
        tmp_path / "run", label_N, {"steps": steps_N}, {"word": (word_N, COLORS)},
        weight_N=random.integers(1, 4, 4000),
    )  # fmt: skip
    record = by_ranks(planted, tmp_path)
    both = outcome(planted, "trees-s7", record)
    alone = make_engine("xgboost", Platform()).run(planned(planted, "alone-s7", "xgboost", **FINE))
    one = outcome(planted, "alone-s7", alone)
    assert record.device_proof["num_ranks"] == 2
    assert record.train_rows == alone.train_rows == planted.schema.splits["train"]
    assert record.best_iteration == alone.best_iteration
    np.testing.assert_allclose(both.valid, one.valid, atol=1e-4)
    np.testing.assert_allclose(both.test, one.test, atol=1e-4)
    np.testing.assert_allclose([loss for _, loss in both.curve], [loss for _, loss in one.curve], atol=1e-4)


def test_ranks_stop_together_when_the_time_is_over(tmp_path: Path) -> None:
    planted = waves(tmp_path / "run", numbers=True)
    record = by_ranks(
        planted, tmp_path, until=time.monotonic() + 12, ntrees=1_000_000, early_stopping_rounds=0
    )
    assert record.out_of_time
    assert 0 < record.best_iteration < 1_000_000


def test_a_rank_without_validation_rows_trains_with_the_others(tmp_path: Path) -> None:
    label_N = np.arange(200) % 2
    planted = table(
        tmp_path / "run", label_N, {"x": label_N + np.linspace(0, 0.1, 200)},
        split_N=np.array(["train"] * 150 + ["valid"] + ["test"] * 49),
    )  # fmt: skip
    record = by_ranks(planted, tmp_path, max_depth=1, early_stopping_rounds=0, ntrees=3)
    assert outcome(planted, "trees-s7", record).accuracy() == 1.0


def test_what_one_rank_refuses_ends_the_trial_with_that_reason(tmp_path: Path) -> None:
    planted = waves(tmp_path / "run", numbers=True)
    with pytest.raises(TrialError, match='"exact" grows trees in one process'):
        by_ranks(planted, tmp_path, tree_method="exact")


def test_a_killed_rank_is_named_and_all_begin_again(tmp_path: Path) -> None:
    planted = waves(tmp_path / "run", numbers=True)
    events = EventReader(planted.paths.lane(0).events("trees"))
    killed = []

    def kill_one(ranks: list[subprocess.Popen[bytes]]) -> None:
        while not killed:
            if any(event.kind == "progress" for event in events.new()):
                ranks[1].kill()
                killed.append(1)
            time.sleep(0.01)

    record = by_ranks(planted, tmp_path, meanwhile=kill_one, ntrees=2_000, early_stopping_rounds=0)
    (note,) = record.notes
    assert note.startswith("started again from the first tree: rank 1 of 2 was killed (out of memory?)")
    assert record.best_iteration > 0
