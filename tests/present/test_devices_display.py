"""The display shows each device's load in the space it has."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from test_terminal import Clock, Terminal, ordinary_terminal, plain, progress, results

from sparkgpu.core.host.telemetry import GpuSample, Sample
from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import Event
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.terminal.display import LiveDisplay

__all__ = ["ordinary_terminal"]  # a fixture that also holds here

GIB = 2**30


def gpu_plan(lanes: int = 2) -> Plan:
    return Plan(
        preset="fast",
        lanes=tuple(
            LanePlan(
                index=index, device=f"cuda:{index}", cuda_visible_devices=f"GPU-{index}", device_name="H100",
                threads=2, tree_threads=2, neural_threads=2, heap_bytes=2**31, port_base=21000 + index,
            )
            for index in range(lanes)
        ),
        trials=tuple(
            TrialSpec.model_validate(
                {"name": f"{model}-s{7 + lane}", "model": model, "engine": engine, "seed": 7 + lane,
                 "fold": None, "lane": lane, "gang": (lane,)}
            )
            for lane in range(lanes)
            for model, engine in (("trees", "h2o-xgboost"), ("neural", "torch"))
        ),
        reasons={},
    )  # fmt: skip


def sample(second: float = 0.0, *utils: float | None) -> Sample:
    return Sample(
        at=1000 + second, elapsed_s=second, cpu_percent=41.6, mem_used_bytes=7 * GIB,
        mem_available_bytes=9 * GIB, rss_bytes=3 * GIB,
        gpus=tuple(
            GpuSample(gpu=place, gpu_uuid=f"GPU-{place}", gpu_util=util, gpu_mem_bytes=31.2 * GIB,
                      gpu_mem_total_bytes=79.6 * GIB, gpu_power_w=412.4)
            for place, util in enumerate(utils)
        ),
    )  # fmt: skip


def training(trial: str) -> Event:
    return Event(at=0, kind="phase", text="training", trial=trial)


def frame_lines(display: LiveDisplay) -> list[str]:
    """What the display draws now."""
    console = Console(file=StringIO(), width=display._console.size.width, force_terminal=True)
    with console.capture() as captured:
        console.print(display._frame())
    return plain(captured.get())


@pytest.mark.parametrize(("lanes", "columns"), [(1, 80), (2, 80), (8, 80), (8, 120), (16, 80)])
def test_lanes_and_devices_fit_a_small_terminal(
    lanes: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "24")
    with LiveDisplay(Terminal(), clock=Clock()) as display:
        display.plan(gpu_plan(lanes), "x", None)
        for lane in range(lanes):
            display.event(lane, "trees", training(f"trees-s{7 + lane}"))
        display.event(0, "trees", progress(0.4, 4.0, step=160, metric="roc_auc", value=0.716))
        display.sample(sample(0, *(10.0 * place for place in range(lanes))))
        lines = frame_lines(display)
    assert max(map(cell_len, lines)) <= columns
    assert len(lines) <= 24
    assert lines[-2] == "0:00 elapsed" and lines[-1] == ""
    shown = "\n".join(lines)
    if lanes == 1:
        assert lines[-4:-2] == [
            "cuda:0  " + "━" * 29 + "    0 % busy  31.2 of 79.6 GiB        412 W",
            "cpu     " + "━" * 12 + "╺" + "━" * 16 + "   42 % busy   7.0 of 16.0 GiB  run 3.0 GiB",
        ]
    if lanes == 8:
        assert sum(line.startswith("cuda:") for line in lines) == 8
        assert any(line.startswith("0 cuda:0") and " 0.7160  40% 0:06 left" in line for line in lines)
    if lanes == 16:
        assert not any(line.startswith("cuda:") for line in lines), "there is no room for them"
    assert "40%" in shown


def test_a_driver_that_tells_nothing_leaves_gaps() -> None:
    out = Terminal()
    bare = Sample(at=1, elapsed_s=1, gpus=(GpuSample(gpu=0, gpu_uuid="GPU-0"),))
    with LiveDisplay(out, clock=Clock()) as display:
        display.plan(gpu_plan(1), "x", None)
        display.sample(bare)
        lines = frame_lines(display)
    assert lines[-4].startswith("cuda:0  ━") and lines[-4].endswith("– % busy")
    assert lines[-2] == "0:00 elapsed"


CELL = """
import sys
sys.path.insert(0, {tests!r})
from test_devices_display import in_cell
in_cell()
"""


def in_cell() -> None:
    """A run's events in a notebook's cell, without the run."""
    from sparkgpu.present.terminal.display import open_display

    clock = Clock()
    with open_display(False, clock=clock) as display:
        display.plan(gpu_plan(), "flights.parquet", "late")
        display.event(0, "trees", training("trees-s7"))
        for percent in range(101):
            clock.now = 100 + percent / 10
            display.event(0, "trees", progress(percent / 100, percent / 10, step=percent))
            display.sample(sample(percent, 97, 3))
        display.event(1, "trees", Event(at=1, kind="trial_failed", trial="trees-s8", text="Java heap space"))
        display.finish(results(), RunPaths(root=Path("reports/x")))
        display.report(Path("reports/x/report/index.html"), ())


def stopped_in_cell() -> None:
    """A run that an error ends."""
    from sparkgpu.present.terminal.display import open_display

    with open_display(False, clock=Clock()) as display:
        display.plan(gpu_plan(1), "flights.parquet", "late")
        display.event(0, "trees", training("trees-s7"))
        raise ValueError("stopped")


@pytest.mark.process
def test_a_notebook_shows_one_block_that_ends_with_the_result() -> None:
    import nbformat
    from nbclient import NotebookClient

    code = CELL.format(tests=str(Path(__file__).parent))
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(code),
            nbformat.v4.new_code_cell(code.replace("in_cell", "stopped_in_cell")),
        ]
    )
    notebook.cells[1].metadata["tags"] = ["raises-exception"]
    sys.path.insert(0, str(Path(__file__).parent))
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    (block,) = notebook.cells[0].outputs
    text, page = block["data"]["text/plain"], block["data"]["text/html"]
    assert text.startswith("sparkgpu  flights.parquet, target late\n")
    assert "lane 1 trees: trees-s8 failed: Java heap space" in text
    assert (
        "ROC AUC" in text
        and "run     reports/x" in text
        and "report  reports/x/report/index.html" in text
        and "elapsed" not in text
    )
    assert "preset" in page and "\x1b" not in page
    block, error = notebook.cells[1].outputs
    assert "training · trees-s7" in block["data"]["text/plain"]  # where it was when it stopped
    assert error["output_type"] == "error"
