"""What several devices brought: the run's own table, a bench of its network, and the pages of clusters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.advice import BenchRecord, BenchRow
from sparkgpu.core.rundir.files import read_record, write_json, write_text
from sparkgpu.core.rundir.metrics_json import Results, read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.present.report import build
from sparkgpu.present.result_tables import timings
from sparkgpu.present.scaling import busy_sentence, shares
from sparkgpu.present.timeline import seconds_by_phase

MakeRun = Callable[..., RunPaths]
BEGINS = {"trees-s7": 100.0, "trees-s8": 100.0, "neural-s7": 110.0, "neural-s8": 130.0}


@pytest.fixture(autouse=True)
def _only(only_sections: Callable[..., None], undrawn: None) -> None:
    only_sections("machine", "repeat")


def of(paths: RunPaths) -> tuple[Plan, Results]:
    return read_record(paths.plan, Plan), read_results(paths)


@pytest.fixture
def two_lanes(run_directory: MakeRun) -> RunPaths:
    """Each trial takes 20 s; the trees of both lanes at the same time, the networks one after the other."""
    paths = run_directory()
    for trial in read_results(paths).done():
        record = FitRecord(
            trial=trial.name, engine=trial.engine, fit_s=trial.fit_s, predict_s=trial.predict_s,
            train_rows=400, train_rows_per_s=trial.train_rows_per_s, peak_host_bytes=1, best_iteration=1,
            began_at=BEGINS[trial.name], ended_at=BEGINS[trial.name] + 20.0,
        )  # fmt: skip
        write_json(paths.trial(trial.name).fit, record)
    return paths


def test_a_run_tells_how_many_trials_worked_at_once_and_what_they_took(two_lanes: RunPaths) -> None:
    table = shares(two_lanes, *of(two_lanes))
    trees, neural, whole = ([cell.text for cell in row] for row in table.rows)
    assert table.columns[:6] == ("model", "trained on", "trials", "devices", "time", "at once")
    assert trees[:6] == ["trees", "one device each", "2", "2", "20 s", "2.0"]
    assert neural[4:6] == ["40 s", "1.0"]
    assert trees[6] == "15,432" and neural[6] == "7,716"  # 2 × 12.5 s × 12,345.6 rows/s in that time
    # Lane 0 works from 100 to 130 s, lane 1 from 100 to 120 and from 130 to 150: 70 of 166.4 s.
    said = busy_sentence(two_lanes, *of(two_lanes))
    assert said.startswith("Trials worked on the 2 devices for 42 % of the run;")
    assert "share the cores of one machine" in said
    for trial in of(two_lanes)[1].done():  # records without times leave the columns out
        two_lanes.trial(trial.name).fit.unlink()
    columns = shares(two_lanes, *of(two_lanes)).columns
    assert (
        not {"at once", "rows/s together"} & set(columns) and busy_sentence(two_lanes, *of(two_lanes)) == ""
    )
    assert trees[7] == "26 s" and whole[:1] == ["the whole run"] and whole[4] == "83 s"


def test_a_bench_in_the_runs_folder_is_shown_and_its_command_otherwise(run_directory: MakeRun) -> None:
    paths = run_directory(repeats=1)
    page = build(paths).read_text(encoding="utf-8")
    command = f"sparkgpu bench scaling --config {paths.root}/run.toml --devices 1,2 --out {paths.root}/bench"
    assert command in page
    assert command in (paths.report / "report.md").read_text(encoding="utf-8")
    row = BenchRow(
        name="ddp", devices=2, networks=1, time_s=2.5, rows_per_s=4000.0, speed_up=1.6, device_hours=1e-3,
        price=None,
    )  # fmt: skip
    first = row.model_copy(update={"name": "single", "devices": 1, "speed_up": 1.0})
    record = BenchRecord(title="Scaling on CPU", rows=(first, row), notes=("two <cores>",))
    write_json(paths.bench / "bench.json", record)
    page = build(paths).read_text(encoding="utf-8")
    assert "sparkgpu bench scaling" not in page
    assert "1.60" in page and "80%" in page and "two &lt;cores&gt;" in page


def test_a_run_on_a_cluster_names_its_cluster_where_it_is_repeated(run_directory: MakeRun) -> None:
    paths = run_directory(repeats=1)
    plan = read_record(paths.plan, Plan)
    reasons = {"devices": "2 executors on 1 host with 2 cores"}
    write_json(paths.plan, plan.model_copy(update={"master": "spark://head:7077", "reasons": reasons}))
    write_text(paths.config, "seed = 7\n")
    page = build(paths).read_text(encoding="utf-8")
    assert "sparkgpu run --config run.toml --set cluster.master=spark://head:7077" in page
    assert "<dt>cluster</dt>" in page and "peak memory of the driver" in page
    assert "sparkgpu bench scaling" not in page, "it would measure this machine"
    write_text(paths.config, '[cluster]\nmaster = "spark://head:7077"\n')
    assert "--set cluster.master" not in build(paths).read_text(encoding="utf-8")


def test_the_table_of_phases_counts_as_the_picture_over_time(run_directory: MakeRun) -> None:
    paths = run_directory(repeats=1)
    recorded = read_results(paths).phases_s
    assert seconds_by_phase(paths, recorded)["lane 0 trees"] == recorded["lane 0 trees"]
    lines = (
        '{"at":1000.0,"kind":"phase","text":"starting Spark"}',
        '{"at":1003.0,"kind":"phase","text":"training","trial":"trees-s7"}',
        '{"at":1009.5,"kind":"trial_done","trial":"trees-s7","done":1.0}',
    )
    write_text(paths.lane(0).events("trees"), "\n".join((*lines, "")))
    found = seconds_by_phase(paths, recorded)
    assert found["lane 0 trees"] == {"starting Spark": 3.0, "training": 6.5}
    assert found["run"] == recorded["run"]
    table = timings(found)
    place = table.columns.index("lane 0 trees")
    assert [row[place].text for row in table.rows if row[0].text == "training"] == ["6.5 s"]
