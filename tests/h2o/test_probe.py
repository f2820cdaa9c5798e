"""H2O's probe of a GPU: once for a card and a driver, one process after the other, two witnesses."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sparkgpu.core.host.devices import Device, Machine
from sparkgpu.core.host.gpus import Gpu, Survey
from sparkgpu.core.rundir.events import WAITING_FOR_PROBE, EventWriter
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.h2o import probe, proven
from sparkgpu.ops.doctor.gpu_checks import gpu_checks

H100 = Gpu(index=0, uuid="GPU-a", title="H100", memory_bytes=2**36, compute_capability=(9, 0))


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventWriter:
    """The events of a lane on an H100, and a place of its own for what is kept."""
    monkeypatch.setattr(proven, "kept", lambda name: tmp_path / "kept" / name)
    monkeypatch.setattr(probe, "find_gpus", lambda: Survey(gpus=(H100,), driver="580.1"))
    monkeypatch.setattr(probe, "is_on_gpu", lambda uuid, processes: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", H100.uuid)
    return writer(tmp_path, 0)


def writer(root: Path, lane: int) -> EventWriter:
    own = RunPaths(root=root).lane(lane)
    own.root.mkdir(parents=True)
    return EventWriter(own.events("trees"), own.phases("trees"))


def known(driver: str, card: Gpu) -> bool:
    device = Device(kind="cuda", name="cuda:0", title=card.title, visible=card.uuid)
    return proven.is_proven(Machine(cores=1, memory_bytes=1, gpus=(card,), driver=driver), [device])


def test_an_answer_is_kept_for_the_card_and_the_driver_but_a_failure_is_not(
    lane: EventWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter(["out of memory", None])
    monkeypatch.setattr(probe, "_why_not", lambda: next(asked))
    assert probe.why_not_on_gpu(lane) == "out of memory" and not known("580.1", H100)
    assert probe.why_not_on_gpu(lane) is None and known("580.1", H100)
    assert probe.why_not_on_gpu(lane) is None  # and nothing trains
    l4 = Gpu(index=0, uuid="GPU-a", title="L4", memory_bytes=2**34, compute_capability=(8, 9))
    assert not known("590.1", H100) and not known("580.1", l4)
    lines = {check.name: check for check in gpu_checks(Survey(gpus=(H100,), driver="580.1", cuda=(13, 0)))}
    assert lines["H2O XGBoost on GPUs"].found == "it trained on such GPUs with this driver before"


def test_h2o_s_word_does_not_count_against_nvml(lane: EventWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_why_not", lambda: None)
    monkeypatch.setattr(probe, "is_on_gpu", lambda uuid, processes: False)
    assert probe.why_not_on_gpu(lane) == "NVML shows other processes on the GPU, and not that of H2O"
    assert not known("580.1", H100)


def test_of_two_lanes_one_probes_and_the_other_waits_for_its_answer(
    lane: EventWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, probes = threading.Event(), threading.Event(), []

    def slow() -> None:
        probes.append(1)
        begun.set()
        assert may_end.wait(20)

    monkeypatch.setattr(probe, "_why_not", slow)
    first = threading.Thread(target=probe.why_not_on_gpu, args=(lane,))
    second = threading.Thread(target=probe.why_not_on_gpu, args=(writer(tmp_path, 1),))
    first.start()
    assert begun.wait(20)
    second.start()
    events = RunPaths(root=tmp_path).lane(1).events("trees")
    for _ in range(400):
        if events.exists() and WAITING_FOR_PROBE in events.read_text():
            break
        second.join(0.05)
    else:
        pytest.fail("the second lane does not say that it waits")
    may_end.set()
    first.join(20)
    second.join(20)
    assert probes == [1] and known("580.1", H100)
