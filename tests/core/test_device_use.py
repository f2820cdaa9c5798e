"""The telemetry proves on which GPU a trial's process ran, and names devices that idled."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkgpu.core.host.telemetry import GpuSample, Sample
from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import Event, EventWriter
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.runs.caveats import gpu_samples, idle_devices, nvml_proof

UUIDS = ("GPU-a", "GPU-b")


def plan(**changes: object) -> Plan:
    lanes = tuple(
        LanePlan(
            index=index, device=f"cuda:{index}", cuda_visible_devices=uuid, device_name="H100", threads=2,
            tree_threads=2, neural_threads=2, heap_bytes=2**31, port_base=21000,
        )
        for index, uuid in enumerate(UUIDS)
    )  # fmt: skip
    return Plan.model_validate(
        {"preset": "fast", "lanes": lanes, "trials": (spec("trees"), spec("neural", (0, 1))), "reasons": {},
         **changes}
    )  # fmt: skip


def spec(model: str, gang: tuple[int, ...] = (0,)) -> TrialSpec:
    engine = "torch" if model == "neural" else "h2o-xgboost"
    return TrialSpec.model_validate(
        {"name": f"{model}-s7", "model": model, "engine": engine, "seed": 7, "fold": None, "lane": 0,
         "gang": gang}
    )  # fmt: skip


def fit(**changes: object) -> FitRecord:
    return FitRecord.model_validate(
        {"trial": "x", "engine": "x", "fit_s": 1.0, "predict_s": 1.0, "train_rows": 1, "train_rows_per_s": 1,
         "peak_host_bytes": 1, "best_iteration": 1, "on_gpu": True, "began_at": 100.0, "ended_at": 110.0,
         **changes}
    )  # fmt: skip


def samples(
    *processes: str, others: int | None = 0, util: float | None = 50, count: int = 21
) -> list[Sample]:
    """A sample a second from 95 on, of both GPUs; the processes run on the first from 103 on."""
    return [
        Sample(
            at=95.0 + second, elapsed_s=float(second),
            gpus=tuple(
                GpuSample(gpu=index, gpu_uuid=uuid, gpu_util=util, gpu_other_processes=others,
                          gpu_processes=processes if index == 0 and second >= 8 else ())
                for index, uuid in enumerate(UUIDS)
            ),
        )
        for second in range(count)
    ]  # fmt: skip


def test_a_trials_process_is_proved_by_nvml_while_the_trial_ran() -> None:
    proof = nvml_proof(samples("0/trees:11", "0/neural:12"), plan(), spec("trees"), fit())
    assert proof == {
        "nvml": "process 11 on GPU-a in 8 of 11 samples", "nvml_gpus": ["GPU-a"], "nvml_pids": [11],
    }  # fmt: skip
    gang = nvml_proof(samples("0/neural:12", "0/neural:13"), plan(), spec("neural", (0, 1)), fit())
    assert gang["nvml"] == "processes 12, 13 on GPU-a in 8 of 22 samples"


@pytest.mark.parametrize(
    ("given", "looks"),
    [
        (samples("0/neural:12"), 11), (samples("1/trees:11"), 11), (samples(others=None), 11),
        (samples(count=3), 0),
    ],
)  # fmt: skip
def test_without_a_sight_of_the_process_it_is_said(given: list[Sample], looks: int) -> None:
    found = nvml_proof(given, plan(), spec("trees"), fit())
    assert (found["nvml_gpus"], found["nvml_pids"]) == ([], [])
    assert str(found["nvml"]).startswith(f"no process in {looks} samples; in a container")


def test_nothing_is_said_of_trials_on_the_cpu_and_of_gpus_that_nobody_watched() -> None:
    seen = samples("0/trees:11")
    assert nvml_proof(seen, plan(), spec("trees"), fit(on_gpu=False)) == {}
    assert nvml_proof([], plan(), spec("trees"), fit()) == {}
    assert nvml_proof(seen, plan(), spec("trees"), fit(began_at=None, ended_at=None)) == {}


def test_only_the_telemetry_of_gpus_on_this_machine_is_read(tmp_path: Path) -> None:
    assert gpu_samples(RunPaths(root=tmp_path), plan(master="spark://x")) == []


def trained(root: Path, until: float) -> RunPaths:
    """A run whose trees trained from 100 to `until`, and saved their model after that."""
    paths = RunPaths(root=root)
    lane = paths.lane(0)
    events = EventWriter(lane.events("trees"), lane.phases("trees"))
    for at, text in ((90.0, "handing the table to H2O"), (100.0, "training"), (until, "saving the model")):
        events.emit(Event(at=at, kind="phase", text=text, trial="trees-s7"))
    events.close()
    return paths


def test_a_device_that_idled_while_it_trained_is_a_caveat(tmp_path: Path) -> None:
    paths = trained(tmp_path, 160.0)
    slow = samples(util=3, count=80)
    assert idle_devices(paths, plan(), slow, {"trees-s7"}) == [
        "idle devices: while models trained, cuda:0 was busy 3 % of the time (median); so their times and "
        "rows/s do not show what the devices can do"
    ]
    assert idle_devices(paths, plan(), samples(util=60, count=80), {"trees-s7"}) == []
    assert idle_devices(paths, plan(), samples(util=None, count=80), {"trees-s7"}) == []
    assert idle_devices(paths, plan(), slow, set()) == []  # they trained on the CPU


def test_a_device_that_trained_for_seconds_only_is_not_called_idle(tmp_path: Path) -> None:
    assert idle_devices(trained(tmp_path, 110.0), plan(), samples(util=0, count=80), {"trees-s7"}) == []
