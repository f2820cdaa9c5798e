"""Signs of life are written while there is progress, and only then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sparkgpu.core.rundir.events import EventReader, EventWriter
from sparkgpu.lanes.cluster import progress_events as signs_of_life


class Work:
    """Executors that make progress or do not."""

    is_done = False

    def made_progress(self) -> bool:
        return self.is_done


def test_alive_is_written_to_all_while_there_is_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signs_of_life, "ASK_EVERY_S", 0.01)
    files = [tmp_path / "trees.jsonl", tmp_path / "neural.jsonl"]
    writers = [EventWriter(file, tmp_path / "phases.json") for file in files]
    readers = [EventReader(file) for file in files]
    work = Work()
    with signs_of_life.signs_of_life(writers, work):
        time.sleep(0.1)
        assert [reader.new() for reader in readers] == [[], []]
        work.is_done = True
        time.sleep(0.2)
        found = [reader.new() for reader in readers]
    assert {event.kind for events in found for event in events} == {"alive"}
    assert len(found[0]) == len(found[1]) > 1
