"""`--resume`, as a process, of a run whose files were cut, are binary, or of another version."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from injected import CASE_S, OPTIONS, Case, Metrics, Outcome, injected
from running import COMMAND, started, until
from test_surroundings_faults import WITHOUT_JVM

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(CASE_S)]

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "binary": lambda data: bytes(range(256)) * 4,
    "another version": lambda data: b'{"schema_version": 99}\n',
}
FILES: dict[str, tuple[str, Outcome, int, str]] = {
    "the newest checkpoint": ("trials/neural-s7/checkpoints/*/*", "finished", 0, ""),
    "events.jsonl": ("lanes/0/*.events.jsonl", "finished", 0, ""),
    "table/schema.json": ("table/schema.json", "refused", 2, "schema.json"),
    "metrics.json": ("metrics.json", "finished", 0, ""),
}


@pytest.fixture(scope="module")
def stopped(wine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was killed while its network trained."""
    folder = tmp_path_factory.mktemp("stopped")
    command = [*COMMAND, "run", wine, *OPTIONS, *WITHOUT_JVM]
    with started(command, folder / "out", folder) as run:
        case = Case(run, folder, {})
        case.reach("training", "neural")
        kept = run.paths.trial("neural-s7").checkpoints
        until(lambda: len([*kept.glob("epoch-*")]) > 1, "two checkpoints", 60, run.process)
        run.signal(signal.SIGKILL)
        run.process.wait()
        run.paths.running.unlink()  # a run that is refused leaves it as it is
    return folder / "out"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file(
    file: str, damage: str, wine: Path, stopped: Path, undisturbed: Callable[..., Metrics], tmp_path: Path
) -> None:
    pattern, outcome, code, said = FILES[file]
    shutil.copytree(stopped, tmp_path / "out")
    if file == "metrics.json":
        (tmp_path / "out" / "metrics.json").write_text(json.dumps(undisturbed(*WITHOUT_JVM)))
    found = sorted((tmp_path / "out").glob(pattern))
    assert found
    last = found[-1].parent
    for one in found if file == "events.jsonl" else [one for one in found if one.parent == last]:
        one.write_bytes(DAMAGES[damage](one.read_bytes()))
    command = [*COMMAND, "run", "--resume"]
    with injected(f"--resume, {file}", damage, wine, tmp_path, command=command) as case:
        case.ends(outcome, code=code, said=said)
        if outcome == "finished":
            for name in ("models", "comparison"):
                assert case.run.metrics[name] == undisturbed(*WITHOUT_JVM)[name]
