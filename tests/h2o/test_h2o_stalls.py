"""An H2O job that stalls in a cloud ends, and the cause of a failed one is found."""

from __future__ import annotations

import time
from typing import Any

import h2o
import pytest

from sparkgpu.core.errors import TrialError
from sparkgpu.h2o import jobs


def followed(monkeypatch: pytest.MonkeyPatch, *, tree_s: float, in_cloud: bool = True) -> None:
    """Follow a job with a tree every `tree_s` seconds."""
    began = time.monotonic()

    def answer(question: str, **_: Any) -> Any:
        trees = (time.monotonic() - began) // tree_s
        return {"jobs": [{"status": "RUNNING", "progress": 0.5, "progress_msg": f"{trees} trees"}]}

    monkeypatch.setattr(h2o, "api", answer)
    monkeypatch.setattr(jobs, "STILL_S", 0.2)
    job = jobs.H2OJob("job", "trees-s7", in_cloud=in_cloud)
    while time.monotonic() < began + 0.5:
        assert job.done() == 0.5
        time.sleep(0.01)


def test_a_job_of_a_cloud_that_makes_no_progress_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrialError, match="trees-s7: H2O made no progress for 0 minutes; its logs are"):
        followed(monkeypatch, tree_s=1e6)


def test_a_job_that_makes_progress_goes_on_and_a_lanes_job_is_watched_by_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    followed(monkeypatch, tree_s=0.1)
    followed(monkeypatch, tree_s=1e6, in_cloud=False)


def test_the_cause_of_a_failed_job_is_its_deepest_one_and_its_node() -> None:
    text = (
        "Job with key $03_a failed with an exception: java.lang.RuntimeException: Error while training "
        "XGBoost model\nstacktrace: \njava.lang.RuntimeException: Error while training XGBoost model\n"
        "\tat hex.tree.xgboost.XGBoost$XGBoostDriver.buildModel(XGBoost.java:440)\n"
        "Caused by: DistributedException from localhost/127.0.0.1:54325: 'nthreads must be positive', "
        "caused by java.lang.IllegalArgumentException: nthreads must be positive\n"
        "\tat water.MRTask.getResult(MRTask.java:660)\n"
        "Caused by: java.lang.IllegalArgumentException: nthreads must be positive\n"
        "\tat water.LocalMR.<init>(LocalMR.java:30)\n"
    )
    assert jobs.cause_of(text) == (
        "Error while training XGBoost model: nthreads must be positive (on node 127.0.0.1:54325)"
    )
