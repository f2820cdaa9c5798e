"""Benches: figures of a table are right, bad input starts nothing, and a tiny one trains for real."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.core.rundir.advice import BenchRecord
from sparkgpu.core.rundir.files import read_record
from sparkgpu.ops.advise.scaling import Link, Step
from sparkgpu.ops.bench.command import _carry_out
from sparkgpu.ops.bench.rows import assumptions, measured_rows, simulated_rows
from sparkgpu.ops.bench.train import Case, Measured

Call = Callable[..., tuple[int, str, str]]

STEP = Step(
    fixed_s=1e-3, row_s=1e-5, batch=256, weight_bytes=4_000,
    link=Link(bytes_per_s=2e9, latency_s=5e-6, origin="as given"),
)  # fmt: skip


def measured(case: str, devices: int, epochs_s: list[float], threads: int = 1) -> Measured:
    strategy = "ddp" if case == "ddp" else "single"
    return Measured(
        case=Case(name=case, strategy=strategy, devices=devices), epochs_s=epochs_s, threads=threads,
        batch=256, parameters=1_000, train_rows=10_000, wall_s=20.0,
    )  # fmt: skip


FOUND = [
    measured("single", 1, [4.0], threads=2),
    measured("ddp", 2, [2.5]),
    measured("lanes", 2, [5.0, 5.0]),
]


def test_rows_give_speed_up_efficiency_hours_and_price() -> None:
    single, ddp, lanes = measured_rows(FOUND, cores=2, on_cpu=True, price=3.6)
    assert (single.speed_up, single.efficiency) == (1.0, 1.0)
    assert (ddp.speed_up, ddp.efficiency) == (pytest.approx(1.6), pytest.approx(0.8))
    assert (lanes.speed_up, lanes.networks) == (pytest.approx(1.6), 2)
    assert ddp.device_hours == pytest.approx(5 / 3600) and ddp.price == pytest.approx(5e-3)
    assert lanes.device_hours == pytest.approx(5 / 3600), "each of the two networks"
    assert single.note == "all 2 cores" and ddp.note == "the same 2 cores, 1 core for each lane"


def test_more_threads_than_cores_are_called_oversubscribed() -> None:
    (row,) = measured_rows([measured("lanes", 3, [4.0] * 3)], cores=2, on_cpu=True, price=None)
    assert row.note == "oversubscribed: 3 threads on 2 cores"
    assert measured_rows([measured("ddp", 2, [4.0])], cores=8, on_cpu=False, price=None)[0].note == ""


def test_simulated_rows_say_so_and_lanes_are_ideal() -> None:
    rows = simulated_rows(FOUND[0], [8, 64], ["ddp", "tp"], step=STEP, price=None)
    assert [(row.name, row.devices) for row in rows] == [("lanes", 8), ("ddp", 8), ("lanes", 64), ("ddp", 64)]
    assert all(row.is_simulated and row.note == "simulated" for row in rows)
    assert [row.efficiency for row in rows if row.name == "lanes"] == [1.0, 1.0]
    assert all(row.speed_up <= row.devices for row in rows)
    said = " ".join(assumptions(STEP))
    assert "1,000 weights" in said and "2.00 GB/s with 5 µs of latency, as given" in said


def test_a_bench_that_is_stopped_leaves_what_it_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tuple(measured_rows(FOUND, cores=2, on_cpu=True, price=None))
    folder = tmp_path / "here"

    def work(tell: object) -> Iterator[BenchRecord]:
        yield BenchRecord(title="Scaling", rows=rows, notes=("not finished: 2 of 5",))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _carry_out(folder, False, work)
    text = (folder / "bench.md").read_text()
    assert text.splitlines()[4].startswith("| single | 1 | 1 | 4.0 s | 2,500 | 1.00 | 100% |")
    assert text.endswith("\n- Not finished: 2 of 5.\n")
    assert read_record(folder / "bench.json", BenchRecord).rows == rows
    assert "single" in capsys.readouterr().out


def test_a_bench_that_is_stopped_before_its_first_row_leaves_no_folder(tmp_path: Path) -> None:
    def work(tell: object) -> Iterator[BenchRecord]:
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        _carry_out(tmp_path / "here", False, work)
    assert not (tmp_path / "here").exists()


def bench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparkgpu", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=cwd)


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    numbers_NF = random.normal(size=(600, 3))
    kind_N = np.where(numbers_NF[:, 0] > 0, "tall", "short")
    columns = {f"x{place}": numbers_NF[:, place] for place in range(3)}
    words_N = random.choice(["red", "white"], 600)
    pq.write_table(pa.table({**columns, "colour": words_N, "kind": kind_N}), tmp_path / "flowers.parquet")
    return tmp_path / "flowers.parquet"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["scaling", "--devices", "0"], 2, "--devices 0: give whole numbers from 1 on"),
        (["scaling", "--devices", "9999"], 3, "--devices 9999: this machine has"),
        (["scaling", "--strategies", "ddq"], 2, "--strategies ddq: choose one of single, dp, ddp"),
        (["scaling", "--bandwidth", "3"], 2, "--bandwidth and --latency: give both"),
        (["scaling", "absent.parquet"], 4, "absent.parquet: there is no such file"),
        (["loading", "flowers.parquet"], 4, "no target is named"),
        (["scaling", "--out", "."], 2, "--out .: it is not an empty folder"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_folder(
    call: Call, flowers: Path, arguments: list[str], code: int, message: str
) -> None:
    command, *options = arguments
    devices = [] if command == "loading" else ["--devices", "1"]
    found, _, err = call("bench", command, *devices, "--out", "here", *options)
    assert found == code, err
    assert message in err.splitlines()[-1]
    assert not (flowers.parent / "here").exists()


@pytest.mark.process
@pytest.mark.slow
def test_one_network_over_two_lanes_is_timed_against_one_device_and_simulated_further(flowers: Path) -> None:
    ended = bench(
        "scaling", "flowers.parquet", "--target", "kind", "--devices", "1,2", "--strategies", "ddp",
        "--epochs", "3", "--simulate", "8", "--bandwidth", "10", "--latency", "5", "--out", "here",
        "--set", "neural.architecture=mlp", "--set", "neural.hidden=[16]", cwd=flowers.parent,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "training: single on 1 device (1 of 3) ..." in ended.stderr
    assert "training: ddp on 2 devices (2 of 3, about " in ended.stderr
    rows = read_record(flowers.parent / "here" / "bench.json", BenchRecord).rows
    assert [(row.name, row.devices) for row in rows] == [
        ("single", 1), ("ddp", 2), ("lanes", 2), ("lanes", 8), ("ddp", 8),
    ]  # fmt: skip
    assert all(row.rows_per_s > 0 for row in rows)
    assert rows[-1].speed_up <= 8
    assert "10.00 GB/s with 5 µs of latency, as given" in (flowers.parent / "here" / "bench.md").read_text()


@pytest.mark.slow
@pytest.mark.process
def test_the_ways_of_loading_are_timed_with_the_same_network(flowers: Path) -> None:
    ended = bench(
        "loading", "flowers.parquet", "--target", "kind", "--cpu-lanes", "1",
        "--set", "neural.hidden=[16]", "--out", "here", "--json", cwd=flowers.parent,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    rows = BenchRecord.model_validate_json(ended.stdout).rows
    assert rows == read_record(flowers.parent / "here" / "bench.json", BenchRecord).rows
    assert [row.name for row in rows] == ["resident", "stream"]
    assert "the median of 19 after a first one" in (flowers.parent / "here" / "bench.md").read_text()
