"""Events pass from a worker to the parent line by line, and a half-written line waits for its end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sparkgpu.core.rundir.events import Event, EventReader, EventWriter
from sparkgpu.core.rundir.files import read_json


@pytest.fixture
def writer(tmp_path: Path) -> EventWriter:
    return EventWriter(tmp_path / "lanes" / "0" / "trees.events.jsonl", tmp_path / "phases.json")


@pytest.fixture
def reader(tmp_path: Path) -> EventReader:
    return EventReader(tmp_path / "lanes" / "0" / "trees.events.jsonl")


def test_what_was_written_is_read_once_and_in_order(writer: EventWriter, reader: EventReader) -> None:
    assert reader.new() == []  # there is no file yet
    with writer.phase("training", "trees-s7"):
        first = reader.new()
        writer.progress("trees-s7", 0.5, step=10, metric="logloss", value=0.25)
    first += reader.new()
    assert [(event.kind, event.trial) for event in first] == [("phase", "trees-s7"), ("progress", "trees-s7")]
    assert first[0].text == "training"
    assert (first[1].done, first[1].step, first[1].metric, first[1].value) == (0.5, 10, "logloss", 0.25)
    assert reader.new() == []
    writer.trial_done("trees-s7")
    writer.trial_failed("neural-s7", "it diverged\nafter 3 steps")
    done, failed = reader.new()
    assert (done.kind, done.trial, done.done) == ("trial_done", "trees-s7", 1.0)
    assert (failed.kind, failed.trial) == ("trial_failed", "neural-s7")
    assert failed.text == "it diverged\nafter 3 steps"


def test_a_half_line_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    reader = EventReader(file)
    line = Event(at=1.0, kind="phase", text="größer").model_dump_json().encode() + b"\n"
    cut = line.index("ß".encode()) + 1  # in the middle of a letter
    with file.open("ab", buffering=0) as appended:
        appended.write(line + line[:cut])
        assert [event.text for event in reader.new()] == ["größer"]
        assert reader.new() == []
        appended.write(line[cut:])
        assert [event.text for event in reader.new()] == ["größer"]
        assert reader.new() == []


def test_a_torn_line_of_a_killed_worker_costs_only_itself(tmp_path: Path, reader: EventReader) -> None:
    file = tmp_path / "lanes" / "0" / "trees.events.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(b'{"at":1.0,"kind":"trial_do')
    EventWriter(file, tmp_path / "phases.json").trial_done("a")  # of the worker that takes its place
    with file.open("ab") as torn:
        torn.write(b'\xff\x00{"at":2.0}\n{"at":3.0,"kind":"alive"}\n')
    assert [(event.kind, event.trial) for event in reader.new()] == [("trial_done", "a"), ("alive", None)]


def test_lines_of_several_threads_stay_whole(writer: EventWriter, reader: EventReader) -> None:
    text = "x" * 5000

    def emit(name: str) -> None:
        for _ in range(50):
            writer.emit(Event(at=0.0, kind="phase", text=text, trial=name))

    threads = [threading.Thread(target=emit, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = reader.new()
    assert len(found) == 200
    assert {event.text for event in found} == {text}


def test_the_seconds_of_a_phase_add_up_and_are_kept_when_it_fails(
    tmp_path: Path, writer: EventWriter
) -> None:
    pause = threading.Event()
    with writer.phase("waiting"):
        pause.wait(0.05)
    first = read_json(tmp_path / "phases.json")["waiting"]
    with pytest.raises(RuntimeError), writer.phase("waiting"):
        pause.wait(0.05)
        raise RuntimeError
    second = read_json(tmp_path / "phases.json")["waiting"]
    assert 0.049 <= first < second
    assert second >= 0.098
    resumed = EventWriter(tmp_path / "lanes" / "0" / "trees.events.jsonl", tmp_path / "phases.json")
    with resumed.phase("waiting"):
        pause.wait(0.05)
    assert read_json(tmp_path / "phases.json")["waiting"] >= 0.147
