"""A stuck H2O job is told from a slow one, and its cause is found."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import Mock

import h2o
import pytest

from sparkgpu.h2o import jobs

# Of a cloud in which XGBoost's set-up failed on one node.
STUCK = (
    '"FJ-1-1" daemon prio=9 tid=120 java.lang.Thread.State: WAITING\n'
    "\tat java.base@17.0.15/java.lang.Thread.join(Thread.java:1313)\n"
    "\tat app//hex.tree.xgboost.rabit.RabitTrackerH2O.waitFor(RabitTrackerH2O.java:215)\n",
    '"TCP-sun.nio.ch.ServerSocketChannelImpl[/127.0.0.1:9091]" daemon prio=9 tid=182 '
    "java.lang.Thread.State: RUNNABLE\n\tat java.base@17.0.15/sun.nio.ch.Net.accept(Native Method)\n",
    '"XGBoostUpdater-trees-s7" daemon prio=9 tid=183 java.lang.Thread.State: RUNNABLE\n'
    "\tat app//ai.h2o.xgboost4j.java.XGBoostJNI.RabitInit(Native Method)\n"
    "\tat app//ai.h2o.xgboost4j.java.Rabit.init(Rabit.java:75)\n",
    '"FJ-2-1" daemon prio=9 tid=99 java.lang.Thread.State: TIMED_WAITING\n\tat Object.wait\n',
)
GROWING = (
    '"XGBoostUpdater-trees-s7" daemon prio=9 tid=183 java.lang.Thread.State: RUNNABLE\n'
    "\tat app//ai.h2o.xgboost4j.java.XGBoostJNI.XGBoosterUpdateOneIter(Native Method)\n"
)


def watched_job(monkeypatch: pytest.MonkeyPatch, *traces: str, tree_s: float = 1e6) -> jobs.H2OJob:
    """A job with a tree every `tree_s` seconds, in a cloud of two nodes; one of them shows these threads."""
    began = time.monotonic()
    nodes = [{"ip_port": f"127.0.0.1:{port}", "nthreads": 1} for port in (21000, 21004)]

    def answer(question: str, **_: Any) -> Any:
        if question == "GET /3/Cloud":
            return Mock(nodes=nodes)
        if question == "GET /3/JStack":
            return {"traces": [{"thread_traces": []}, {"thread_traces": list(traces)}]}
        trees = (time.monotonic() - began) // tree_s
        return {"jobs": [{"status": "RUNNING", "progress": 0.5, "progress_msg": f"{trees} trees"}]}

    monkeypatch.setattr(h2o, "api", answer)
    monkeypatch.setattr(jobs, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(jobs, "STUCK_S", 0.2)
    return jobs.H2OJob("job", "trees-s7", jobs.Cloud())


def followed(job: jobs.H2OJob) -> None:
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert job.done() == 0.5
        time.sleep(0.01)


def test_a_job_whose_nodes_only_wait_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    job = watched_job(monkeypatch, *STUCK)
    with pytest.raises(jobs.StalledError) as stalled:
        followed(job)
    assert str(stalled.value) == (
        "trees-s7: H2O is stuck: no thread of 127.0.0.1:21000, 127.0.0.1:21004 works; its logs are in the "
        "executors' folders."
    )


def test_a_slow_tree_is_not_stuck_and_neither_is_a_job_that_makes_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    followed(watched_job(monkeypatch, *STUCK, GROWING))
    followed(watched_job(monkeypatch, *STUCK, tree_s=0.1))


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
