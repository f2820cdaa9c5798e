"""The display shows a run on a terminal, in a log and in quiet mode, and restores the terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import Event
from sparkgpu.core.rundir.metrics_json import Results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import DroppedColumn, Feature, TableSchema
from sparkgpu.present.table_model import Cell, table_of
from sparkgpu.present.terminal.commands import print_table
from sparkgpu.present.terminal.display import Display, LiveDisplay, PlainDisplay, open_display
from sparkgpu.present.terminal.progress import Progress

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
PATHS = RunPaths(root=Path("reports/2026-11-21T030000Z-a-rather-long-name-of-a-source-that-stays-whole"))

SCHEMA = TableSchema(
    source="flights.parquet", target="late", task="binary", classes=("no", "yes"),
    features=(
        Feature(name="a", source="a[b]", kind="numeric", pipeline="a"),
        Feature(name="c", source="c", kind="categorical", pipeline="c", levels=("x",)),
    ),
    dropped=(
        DroppedColumn(column="price [bold]", reason="one value in every row"),
        DroppedColumn(column="\x1b[31mred\nline", reason="9 values"),
    ),
    notes=("time: expanded to hour",), rows=30_000, rows_refused=5,
    splits={"train": 20_000, "valid": 5_000, "test": 5_000}, fingerprint="f00d",
)  # fmt: skip


class Terminal(StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that only the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "40")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def plan(lanes: int = 2, repeats: int = 2) -> Plan:
    return Plan(
        preset="fast",
        lanes=tuple(
            LanePlan(
                index=index, device="cpu", cuda_visible_devices="", device_name="CPU", threads=2,
                tree_threads=1,
                neural_threads=1, heap_bytes=2**31, port_base=54321 + 100 * index,
            )
            for index in range(lanes)
        ),
        trials=tuple(
            TrialSpec.model_validate(
                {"name": f"{model}-s{7 + i}", "model": model,
                 "engine": "xgboost" if model == "trees" else "torch", "seed": 7 + i, "fold": None,
                 "lane": i % lanes, "gang": (i % lanes,)}
            )
            for i in range(repeats)
            for model in ("trees", "neural")
        ),
        reasons={"preset": "fast, the default on CPU", "repeats": f"{repeats}, one for each lane"},
    )  # fmt: skip


def progress(done: float, at: float, **values: Any) -> Event:
    return Event(at=at, kind="progress", trial="trees-s7", done=done, **values)


def results() -> Results:
    def model(name: str, auc: float, loss: float) -> dict[str, Any]:
        test = {"roc_auc": auc, "log_loss": loss, "f1": None}
        std = {"roc_auc": 0.00123, "log_loss": None, "f1": None} if name != "blend" else {}
        return {
            "name": name, "engine": "x", "status": "done", "trials": [], "metrics": {"test": test},
            "std": {"test": std},
        }  # fmt: skip

    def trial(name: str, **more: Any) -> dict[str, Any]:
        return {
            "name": name, "model": name.partition("-")[0], "engine": "x", "seed": 7, "fold": None, "lane": 0,
            "strategy": "single", "devices": ["cpu"], "metrics": {}, **more,
        }  # fmt: skip

    took = {
        "status": "done", "predict_s": 1.0, "train_rows_per_s": 1.0, "peak_host_bytes": 1,
        "peak_device_bytes": None, "best_iteration": 1, "native_parameters": {}, "device_proof": {},
    }  # fmt: skip
    host = {
        "system": "", "processor": "", "cores": 2, "available_memory_bytes": 1, "gpus": [], "driver": None,
    }  # fmt: skip
    pair = {"a": "trees", "b": "neural", "difference": 0.01, "ci95": [0.0, 0.02], "verdict": "a"}
    return Results.model_validate(
        {
            "schema_version": 1,
            "run": {
                "name": "demo", "started_at": "2026-11-21T03:00:00Z", "wall_s": 83.2, "sparkgpu": "0.1.0",
                "versions": {}, "host": host, "peak_rss_bytes": 1,
            },
            "data": {
                "source": "x", "rows": 3, "rows_refused": 0, "num_features": 1, "target": "y",
                "task": "binary", "classes": ["no", "yes"], "splits": {}, "fingerprint": "",
            },
            "models": [model("trees", 0.75, 0.45), model("neural", 0.74, 0.46), model("blend", 0.76, 0.44)],
            "trials": [
                trial("trees-s7", **took, fit_s=10.0),
                trial("trees-s8", **took, fit_s=14.0),
                trial("neural-s8", status="failed", error="lane 1 died:\nsignal [9]"),
            ],
            "comparison": {
                "metric": "roc_auc", "leader": "blend",
                "pairs": [pair | {"sentence": "trees ahead of neural by 0.01"}],
            },
            "cost": {"device_hours": 0.1, "energy_wh": None, "price": None},
        }
    )  # fmt: skip


def plain(text: str) -> list[str]:
    """The lines of terminal output without control codes."""
    return [
        line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").split("\n")
    ]


def test_the_display_follows_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(open_display(False, StringIO())) is PlainDisplay
    assert type(open_display(False, Terminal())) is LiveDisplay
    assert type(open_display(True, Terminal())) is Display
    monkeypatch.setenv("TERM", "dumb")
    assert type(open_display(False, Terminal())) is PlainDisplay


def test_the_plan_names_lanes_threads_memory_ports_trials_and_reasons() -> None:
    out = StringIO()
    PlainDisplay(out).plan(plan(), "flights[1].parquet", "late")
    assert out.getvalue().splitlines() == [
        "sparkgpu  flights[1].parquet, target late",
        "preset    fast, the default on CPU",
        "lane 0    cpu, 1 thread for trees and 1 for the network, 2.0 GiB of Java heap, ports from 54321",
        "lane 1    cpu, 1 thread for trees and 1 for the network, 2.0 GiB of Java heap, ports from 54421",
        "trials    4: trees-s7, neural-s7, trees-s8, neural-s8",
        "repeats   2, one for each lane",
    ]


def test_the_table_is_described_and_names_are_neither_markup_nor_control_codes() -> None:
    out = StringIO()
    PlainDisplay(out).table(SCHEMA)
    assert out.getvalue().splitlines() == [
        "rows      30,000 (train 20,000, valid 5,000, test 5,000); 5 refused: no target value",
        "target    late, binary: no, yes",
        "features  2: 1 numeric, 1 categorical",
        "dropped   price [bold] (one value in every row),  [31mred line (9 values)",
        "note      time: expanded to hour",
    ]
    live = Terminal()
    LiveDisplay(live).table(SCHEMA)
    assert "\x1b[31m" not in live.getvalue()
    assert "price [bold] (one value in every row)" in " ".join(plain(live.getvalue()))


def test_plain_mode_says_a_line_per_phase_quarter_and_end() -> None:
    out, clock = StringIO(), Clock()
    display = PlainDisplay(out, clock=clock)
    display.plan(plan(), "x", None)
    out.truncate(0)
    out.seek(0)
    display.event(1, "neural", Event(at=0, kind="phase", text="starting"))
    display.event(0, "trees", Event(at=0, kind="phase", text="training", trial="trees-s7"))
    display.event(0, "trees", Event(at=0, kind="phase", text="training", trial="trees-s7"))
    for percent in range(1, 101):
        clock.now = 100 + percent / 10
        display.event(
            0, "trees", progress(percent / 100, percent / 10, step=percent, metric="roc_auc", value=0.7)
        )
    display.event(0, "trees", Event(at=10, kind="trial_done", trial="trees-s7", done=1.0))
    display.event(0, "trees", Event(at=10, kind="trial_failed", trial="trees-s9", text="no [memory]\nleft"))
    assert out.getvalue().splitlines() == [
        "[   0.0 s] lane 1 neural: starting",
        "[   0.0 s] lane 0 trees: training (trees-s7)",
        "[   2.5 s] lane 0 trees: trees-s7 25%, step 25, ROC AUC 0.7000, up to about 7.5 s left",
        "[   5.0 s] lane 0 trees: trees-s7 50%, step 50, ROC AUC 0.7000, up to about 5.0 s left",
        "[   7.5 s] lane 0 trees: trees-s7 75%, step 75, ROC AUC 0.7000, up to about 2.5 s left",
        "[  10.0 s] lane 0 trees: trees-s7 done",
        "[  10.0 s] lane 0 trees: trees-s9 failed: no [memory] left",
    ]
    display.plan(plan(lanes=1), "x", None)
    display.event(0, "trees", Event(at=0, kind="phase", text="starting"))
    assert out.getvalue().endswith(" s] trees: starting\n"), "a single lane is not numbered"


def test_time_left_follows_the_rate_of_the_current_trial_and_counts_down() -> None:
    state = Progress()
    state.take(Event(at=50, kind="phase", text="loading", trial="trees-s7"), 1.0)
    state.take(Event(at=60, kind="phase", text="training", trial="trees-s7"), 11.0)
    assert state.left_s(11.0) is None
    state.take(progress(0.25, 70.0), 21.0)
    assert state.left_s(21.0) == pytest.approx(30.0)  # 10 s for a quarter, without the loading
    assert state.left_s(26.0) == pytest.approx(25.0)
    assert state.left_s(99.0) == 0.0
    state.take(Event(at=90, kind="phase", text="training", trial="trees-s8"), 41.0)
    assert state.left_s(41.0) is None
    assert state.done is None


def test_a_training_that_goes_on_from_a_checkpoint_tells_no_time_left_before_a_few_steps() -> None:
    state = Progress()
    state.take(Event(at=60, kind="phase", text="training", trial="trees-s7"), 1.0)
    state.take(Event(at=61, kind="phase", text="training", trial="trees-s7", done=0.5), 2.0)
    for second in range(1, 6):
        assert state.left_s(2.0) is None
        state.take(progress(0.5 + second / 200, 61.0 + second), 2.0)
    assert state.left_s(2.0) == pytest.approx(95.0)  # by the steps of this session alone


def test_a_resumed_run_took_what_its_parts_took() -> None:
    out, clock = StringIO(), Clock()
    display = Display(out, clock=clock)
    clock.now += 30.0
    display.finish(results(), PATHS)
    clock.now += 5.0
    display.report(PATHS.report / "index.html", ())
    assert "(result after 83 s)" in out.getvalue() and "(88 s in all)" in out.getvalue()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_live_columns_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out, clock = Terminal(), Clock()
    display = LiveDisplay(out, clock=clock)
    with display:
        display.plan(plan(), "flights.parquet", "late")
        display.table(SCHEMA)
        display.event(
            0, "trees", Event(at=0, kind="phase", text="training with many words", trial="trees-s7")
        )
        display.event(0, "trees", progress(0.4, 4.0, step=160, metric="roc_auc", value=0.716))
        clock.now = 104.0
    lines = plain(out.getvalue())
    assert max(cell_len(line) for line in lines) <= columns
    last = "\n".join(lines[-11:])
    assert re.search(r"trees +neural", last)
    assert re.search(r"cpu .* 40% 0:0\d left", last)
    assert "ROC AUC 0.716" in last or columns == 60
    assert "0:04 elapsed" in last


def test_live_columns_are_of_the_models_that_the_run_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out, trees = Terminal(), tuple(trial for trial in plan().trials if trial.model == "trees")
    with LiveDisplay(out, clock=Clock()) as display:
        display.plan(plan().model_copy(update={"trials": trees}), "flights.parquet", "late")
    last = "\n".join(plain(out.getvalue())[-11:])
    assert re.search(r"^ +trees *$", last, re.MULTILINE) and "neural" not in last


def test_many_lanes_shrink_to_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "20")
    out = Terminal()
    with LiveDisplay(out) as display:
        display.plan(plan(lanes=8, repeats=8), "x", None)
        display.event(7, "trees", Event(at=0, kind="progress", trial="trees-s14", done=0.4))
    lines = plain(out.getvalue())
    assert any(line.startswith("7 cpu") and "40%" in line for line in lines)
    assert not any(line.startswith("lane 7  waiting") for line in lines)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_cursor_and_standard_output_come_back_whatever_happens(error: type[BaseException]) -> None:
    out, before = Terminal(), (sys.stdout, sys.stderr)
    with pytest.raises(error), LiveDisplay(out) as display:
        display.plan(plan(), "x", None)
        assert sys.stdout is not before[0]
        raise error
    assert HIDE in out.getvalue()
    assert out.getvalue().rindex(SHOW) > out.getvalue().rindex(HIDE)
    assert (sys.stdout, sys.stderr) == before


def test_a_failed_trial_stays_readable_on_a_terminal() -> None:
    out = Terminal()
    with LiveDisplay(out) as display:
        display.plan(plan(), "x", None)
        display.event(1, "trees", Event(at=0, kind="trial_failed", trial="trees-s8", text="Java heap space"))
        display.event(1, "trees", Event(at=0, kind="phase", text="training", trial="trees-s10"))
    assert any(
        line.endswith("s] lane 1 trees: trees-s8 failed: Java heap space") for line in plain(out.getvalue())
    )


@pytest.mark.parametrize("kind", [Display, PlainDisplay])
def test_the_result_has_models_side_by_side_verdicts_failures_and_paths(kind: type[Display]) -> None:
    out, clock = StringIO(), Clock()
    display = kind(out, clock=clock, passed_s=2.0)
    clock.now += 86.0
    display.finish(results(), PATHS)
    display.report(PATHS.report / "index.html", ["the report lacks the checks of the table"])
    lines = [re.sub(r" {2,}", "|", line.strip()) for line in out.getvalue().splitlines()]
    assert "test split|trees|neural|blend" in lines
    assert "ROC AUC ↑|0.7500 ± 0.0012|0.7400 ± 0.0012|0.7600 *" in lines
    assert "log loss ↓|0.4500|0.4600|0.4400 *" in lines
    assert "F1 ↑|–|–|–" in lines
    assert "mean fit time|12 s|–|–" in lines
    assert lines[-8:] == [
        "* best of the row",
        "Trees ahead of neural by 0.01",
        "neural-s8 failed: lane 1 died: signal [9]",
        "",
        f"leader|{results().comparison.leader}, by the validation rows; each * is of the test rows",
        f"run|{PATHS.root}|(result after 83 s)",
        "note: the report lacks the checks of the table",
        f"report|{PATHS.root}/report/index.html|(88 s in all)",
    ]


def test_a_blend_of_one_model_is_said_in_place_of_its_ties() -> None:
    found = results()
    *others, blend = found.models
    alone = blend.model_copy(update={"weights": {"trees": 0.0, "neural": 1.0}})
    pairs = [
        pair.model_copy(update={"a": a, "b": b, "sentence": f"{a} against {b}"})
        for pair in found.comparison.pairs
        for a, b in (("trees", "neural"), ("blend", "trees"), ("blend", "neural"))
    ]
    comparison = found.comparison.model_copy(update={"pairs": tuple(pairs)})
    out = StringIO()
    Display(out).finish(
        found.model_copy(update={"models": (*others, alone), "comparison": comparison}), PATHS
    )
    lines = out.getvalue().splitlines()
    place = lines.index("Trees against neural")
    assert lines[place + 1] == (
        "The blend is neural alone: no other model makes it better on the validation rows."
    )
    assert "Blend against" not in out.getvalue()


def test_quiet_says_only_errors_before_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    out = StringIO()
    with open_display(True, out) as display:
        display.plan(plan(), "x", None)
        display.table(SCHEMA)
        display.event(0, "trees", Event(at=0, kind="phase", text="training"))
    assert out.getvalue() == ""
    for quiet in (True, False):
        open_display(quiet, StringIO()).error("--gpus 3: no device 3;\nchoose from [0, 1].")
    assert capsys.readouterr().err == 2 * "sparkgpu: --gpus 3: no device 3; choose from [0, 1].\n"


@pytest.mark.process
def test_an_ascii_stream_does_not_end_a_run() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_terminal import *; "
        "d = open_display(False); d.plan(plan(), 'données', 'prix'); d.finish(results(), PATHS)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)], env={"PYTHONIOENCODING": "ascii", **path()},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "donn?es, target prix" in done.stdout


def test_importing_the_terminal_is_cheap() -> None:
    code = "import sys, sparkgpu.present.terminal.display; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=path(), capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not {"numpy", "pydantic", "psutil", "matplotlib", "rich.live", "rich.markdown"} & loaded


def path() -> dict[str, str]:
    """The module search path of this process, for children that inherit no other variables."""
    return {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}


def test_of_models_below_each_other_the_last_columns_go_before_a_name_is_cut() -> None:
    names = ("catboost", "lightgbm", "trees")
    columns = {f"figure {place}": lambda name: Cell(text="0.12345", number=True, best=name == "trees")
               for place in range(6)}  # fmt: skip
    table = table_of(names, {"test split": lambda name: name, **columns}, best_of="column")
    for width in range(36, 100):
        print_table(Console(file=(out := StringIO()), width=width), table)
        lines = out.getvalue().splitlines()
        assert [line.split()[0] for line in lines[2:]] == [*names] and max(map(len, lines)) <= width, lines
