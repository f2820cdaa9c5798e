"""Files of a run, cut, emptied, binary or of another version: each command goes on, or names the file."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from drawn import drawn
from hypothesis import assume, example, given
from hypothesis import strategies as st

import sparkgpu
from sparkgpu.core.errors import ConfigError, SparkgpuError
from sparkgpu.core.host.telemetry import Sample, append_sample
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.advice import BenchRecord
from sparkgpu.core.rundir.files import read_record, write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths, clear_unfinished
from sparkgpu.core.table.schema import read_schema
from sparkgpu.present.figure import Picture
from sparkgpu.present.terminal import monitor
from sparkgpu.runs.evaluate import evaluate

GOLDEN = Path(__file__).parent / "golden" / "2026-11-23"
EVENTS = '{"at": 1.0, "kind": "phase", "text": "training", "trial": "trees-s7"}\n'
BENCH = {"title": "t", "rows": [], "notes": []}

RECORDS = ("metrics.json", "plan.json", "table/schema.json")
OPTIONAL = ("profile.json", "explanations.json", "advice.json", "bench/bench.json")
LIVE = (
    "run.toml", "telemetry.csv", "running.json", "stopped.json", "lanes/0/lane.json",
    "lanes/0/trees.events.jsonl", "lanes/0/neural.phases.json", "lanes/0/neural.error.json",
)  # fmt: skip
OF_TRIALS = tuple(
    f"trials/{trial}/{file}"
    for trial, model in (("trees-s7", ("model.zip",)), ("neural-s7", ("model.json", "model.safetensors")))
    for file in (*model, "predictions.parquet", "fit.json", "learning_curve.csv", "DONE")
)
TABLE = ("table/split=test/part-000000000000.parquet", "table/split=valid/part-000000000000.parquet")
DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut": lambda data, drawn: data[: drawn.randrange(max(1, len(data)))],
    "emptied": lambda data, drawn: b"",
    "binary": lambda data, drawn: drawn.randbytes(300),
    "a hole": lambda data, drawn: _holed(data, drawn.randrange(max(1, len(data))), drawn),
    "null": lambda data, drawn: b"null\n",
    "a list": lambda data, drawn: b"[1, 2]\n",
    "an object": lambda data, drawn: b"{}\n",
    "a later key": lambda data, drawn: _with(data, from_later={"a": 1}),
    "a later version": lambda data, drawn: _with(data, schema_version=99),
    "another type": lambda data, drawn: _with(
        data, **{drawn.choice(sorted(json.loads(data))): drawn.choice([None, 3, "x", [], {}, "NaN", -1.5])}
    ),
}


def _holed(data: bytes, at: int, drawn: random.Random) -> bytes:
    return data[:at] + drawn.randbytes(20) + data[at + 20 :]


def _with(data: bytes, **changed: Any) -> bytes:
    return json.dumps({**json.loads(data), **changed}).encode()


class Damaged:
    """A finished run with all files that one can have, whose files are damaged one after the other."""

    def __init__(self, root: Path, call: Callable[..., tuple[int, str, str]]) -> None:
        self.paths = RunPaths(root=root / "run")
        self.other, self.whole = root / "other", root / "whole"
        self._call = call
        shutil.copytree(GOLDEN, self.paths.root)
        paths, lane = self.paths, self.paths.lane(0)
        write_text(paths.pipeline / "metadata", "")
        write_json(lane.lane, read_record(paths.plan, Plan).lanes[0])
        for branch in ("trees", "neural"):
            write_text(lane.events(branch), EVENTS * 3)
            write_json(lane.phases(branch), {"training": 1.5})
        write_json(lane.error("neural"), {"kind": "trial", "message": "it said so."})
        for second in range(5):
            append_sample(paths.telemetry, Sample(at=1e9 + second, elapsed_s=second, rss_bytes=5.0))
        write_json(paths.stopped, {"exit_code": 5, "message": "it ended."})
        write_json(paths.running, {"process": 1, "user": "ada", "host": "there", "since": "today"})
        write_json(paths.bench / "bench.json", BenchRecord.model_validate(BENCH))
        for trial in ("trees-s7", "neural-s7"):
            paths.trial(trial).finish()
        shutil.copytree(paths.root, self.other)
        metrics = json.loads((self.other / "metrics.json").read_text())
        metrics["run"]["wall_s"] += 1.0  # equal ones would be one run named twice
        write_json(self.other / "metrics.json", metrics)
        self.rows = pq.read_table(paths.root / "small.parquet")
        self.predicted = {name: self.loaded(name) for name in ("trees", "neural")}
        self.report()
        shutil.copytree(self.paths.root, self.whole)

    def restore(self) -> None:
        shutil.rmtree(self.paths.root)
        shutil.copytree(self.whole, self.paths.root)
        for left in Path().glob("out.*"):
            left.unlink()
        shutil.rmtree("out", ignore_errors=True)

    def loaded(self, model: str) -> Any:
        return sparkgpu.load(self.paths.root, model).predict_proba(self.rows)

    def report(self) -> None:
        code, _, err = self._call("report", self.paths.root)
        assert code == 0
        assert all(line.startswith("sparkgpu: note: ") for line in err.splitlines()), err

    def command(self, *words: object) -> None:
        """A refusal becomes an error, as it is in Python."""
        code, _, err = self._call(*words)
        if code:
            assert err.startswith("sparkgpu: ") and err.count("\n") == 1, err
            assert code in (2, 4, 5), err
            raise SparkgpuError(err)

    def same(self, model: str) -> None:
        np.testing.assert_array_equal(self.loaded(model), self.predicted[model])

    def without(self, *files: Path) -> Without:
        return Without(*files)

    def read(self) -> None:
        found = sparkgpu.read_run(self.paths.root)
        shown = (found.leaderboard, found.trials, found.curves, found.importance, found.plot_leaderboard,
                 found.plot_curves, found.plot_quality, found.plot_importance, found.predictions)  # fmt: skip
        for show in shown:
            show()
        assert str(found) and repr(found) and found._repr_html_()

    def scored(self) -> None:
        """What a resumed run does at its end."""
        clear_unfinished(self.paths)
        plan = read_record(self.paths.plan, Plan)
        evaluate(self.paths, plan, read_schema(self.paths), {}, 7, {})


class Without:
    """Takes files away while the block runs."""

    def __init__(self, *files: Path) -> None:
        self._files = files

    def __enter__(self) -> None:
        for file in self._files:
            file.rename(file.with_name("away-" + file.name))

    def __exit__(self, *error: object) -> None:
        for file in self._files:
            file.with_name("away-" + file.name).rename(file)


def _dead(run: Damaged) -> None:
    with run.without(run.paths.metrics, run.paths.stopped), pytest.raises(SparkgpuError) as ended:
        monitor.attach(run.paths.root, quiet=True, dead_s=0.0, wait=lambda seconds: None)
    if "no sign of life" not in str(ended.value):
        raise ended.value


def _unfinished(run: Damaged, command: str) -> None:
    """Of a run without results, which says that it stopped."""
    with run.without(run.paths.metrics):
        code, _, err = run._call(command, run.paths.root)
    lines = [line for line in err.splitlines() if "the run stopped: it ended." not in line]
    assert code in (0, 2, 5) and len(lines) <= 1, err
    if code == 2:
        raise ConfigError(err)


COMMANDS: dict[str, Callable[[Damaged], None]] = {
    "report": lambda run: run.report(),
    "report of an unfinished run": lambda run: _unfinished(run, "report"),
    "monitor": lambda run: run.command("monitor", run.paths.root, "--quiet"),
    "monitor of a stopped run": lambda run: _unfinished(run, "monitor"),
    "monitor of a dead run": _dead,
    "compare": lambda run: run.command("compare", run.paths.root, run.other),
    "read_run": lambda run: run.read(),
    "load trees": lambda run: run.same("trees"),
    "load neural": lambda run: run.same("neural"),
    "predict": lambda run: run.command(
        "predict", run.paths.root, run.paths.root / "small.parquet", "--out", "out.csv", "--model", "blend"
    ),
    "export": lambda run: run.command(
        "export", run.paths.root, "--format", "xgboost", "--model", "trees", "--out", "out.ubj"
    ),
    "export torch": lambda run: run.command(
        "export", run.paths.root, "--format", "torch", "--model", "neural", "--out", "out"
    ),
    "resume": lambda run: run.command("run", "--resume", "--out", run.paths.root, "--dry-run"),
    "scores of a resumed run": lambda run: run.scored(),
}


@pytest.fixture
def run(tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Damaged:
    monkeypatch.setattr(Picture, "svg", "")
    monkeypatch.setattr(Picture, "png", b"")
    return Damaged(tmp_path, call)


@example("profile.json", "cut", 1, "report")
@example("bench/bench.json", "an object", 1, "report")
@example("run.toml", "binary", 1, "compare")
@example("stopped.json", "an object", 1, "monitor of a stopped run")
@example("telemetry.csv", "binary", 1, "monitor of a dead run")
@example("trials/neural-s7/learning_curve.csv", "binary", 1, "scores of a resumed run")
@example("trials/neural-s7/model.safetensors", "a hole", 1, "load neural")
@example("trials/trees-s7/predictions.parquet", "cut", 1, "read_run")
@drawn(60)
@given(
    file=st.sampled_from([*RECORDS, *RECORDS, *OPTIONAL, *LIVE, *OF_TRIALS, *TABLE]),
    damage=st.sampled_from(list(DAMAGES)),
    seed=st.integers(0, 2**32),
    command=st.sampled_from(list(COMMANDS)),
)
def test_a_damaged_file_is_done_without_or_named(
    run: Damaged, file: str, damage: str, seed: int, command: str
) -> None:
    assume((file, command) != ("explanations.json", "report"))  # it is made again, which takes seconds
    place = run.paths.root / file
    data = place.read_bytes()
    if damage in list(DAMAGES)[4:] and place.suffix != ".json":
        damage = "binary"
    place.write_bytes(DAMAGES[damage](data, random.Random(seed)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            COMMANDS[command](run)
    except SparkgpuError as error:  # all others fail the test
        text = str(error)
        assert place.name in text or place.parent.name in text, text
        assert "\n" not in text.strip(), text
    finally:
        run.restore()
