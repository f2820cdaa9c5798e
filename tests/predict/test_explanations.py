"""What models are said to use, on a table where it is known; the process, its time limit and its notes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planted_run import TOWNS, planted_run

from sparkgpu.core.rundir.explanations import Explanations, Importance, read_explanations
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import read_schema
from sparkgpu.predict.explain.columns import user_columns
from sparkgpu.predict.explain.dependence import dependence_of
from sparkgpu.predict.explain.importance import differs, ranked
from sparkgpu.predict.explain.models import Models
from sparkgpu.predict.explain.run import explain
from sparkgpu.predict.explain.sample import draw_sample
from sparkgpu.score import metrics

LONG_S = 120.0  # bounds the test, not the work: what is asked for is done before


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    return planted_run(tmp_path_factory.mktemp("planted") / "run")


def means(found: Explanations, model: str) -> dict[str, float]:
    return {one.column: one.models[model].mean for one in found.importances}


@pytest.mark.process
def test_the_command_explains_a_run_by_its_models(run: RunPaths) -> None:
    command = [sys.executable, "-m", "sparkgpu.predict.explain", str(run.root), "--seconds", str(LONG_S)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * LONG_S)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    found = read_explanations(run)
    assert found is not None
    assert (found.metric, found.rows, found.test_rows, found.columns) == ("roc_auc", 500, 500, 4)
    assert [(model.name, model.trial) for model in found.models] == [
        ("trees", "trees-s7"), ("neural", "neural-s7"),
    ]  # fmt: skip
    assert found.pair == ("trees", "neural")
    assert found.notes == ()
    assert [one.column for one in found.importances][:2] == ["shared", "when"]
    for model in ("trees", "neural"):
        importance = means(found, model)
        assert importance["shared"] > 0.15
        assert abs(importance["noise"]) < 0.01
        assert importance["town"] > 0.01
    first = found.importances[0].models["trees"]
    assert first.shuffles == 4 and first.std is not None and 0 < first.std < first.mean

    drawn = {one.title: one for one in found.dependence}
    assert list(drawn) == ["shared", "when (hour)", "town", "noise"]  # the part of `when` that matters
    for model in ("trees", "neural"):
        curve = drawn["shared"].curves[model]
        assert curve[-1] - curve[0] > 0.5
        town = dict(zip(drawn["town"].at, drawn["town"].curves[model], strict=True))
        assert town["Bonn"] == max(town.values())
    assert drawn["town"].at == TOWNS and sum(drawn["town"].shares) == pytest.approx(1.0)
    assert drawn["shared"].class_name == "class 1"
    summary = found.summary
    assert summary is not None and (summary.model, summary.scale, summary.rows) == ("trees", "log-odds", 100)
    assert summary.class_name == "class 1" and {one.column for one in summary.columns} == set(
        means(found, "trees")
    )
    leading = summary.columns[0]
    assert leading.column == "shared"
    of_high = [added for added, is_high in zip(leading.added, leading.is_high, strict=True) if is_high]
    assert 40 <= len(of_high) <= 60 and np.mean(of_high) > 0.5
    assert {one.column for one in summary.columns if set(one.is_high) == {None}} == {"town", "when"}
    assert len(drawn["shared"].deciles) == 9 and list(drawn["shared"].at) == sorted(drawn["shared"].at)


@pytest.mark.process
def test_a_model_that_cannot_be_loaded_is_named_and_the_others_are_explained(
    run: RunPaths, tmp_path: Path
) -> None:
    paths = RunPaths(root=tmp_path / "run")
    shutil.copytree(run.root, paths.root)
    (paths.trial("neural-s7").root / "model.safetensors").unlink()
    found = explain(paths, LONG_S)
    assert [model.name for model in found.models] == ["trees"]
    (note,) = found.notes
    assert note.startswith("neural is left out: ") and "model.safetensors" in note
    assert found.pair is None
    assert means(found, "trees")["shared"] > 0.15


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_what_is_not_drawn_has_its_reason_and_booleans_are_drawn_as_levels(
    run: RunPaths, tmp_path: Path, value: float
) -> None:
    paths = RunPaths(root=tmp_path / "run")
    shutil.copytree(run.root, paths.root, ignore=shutil.ignore_patterns("explanations.json"))
    for file in paths.split("test").glob("*.parquet"):
        table = pq.ParquetFile(file).read()
        value_N = pa.array(np.where(table["label"], 0.0, value).astype(np.float32))
        pq.write_table(table.set_column(table.column_names.index("noise"), "noise", value_N), file)
    schema = read_schema(paths)
    as_boolean = (
        *schema.features[:-1], schema.features[-1].model_copy(update={"reading": "boolean"})
    )  # fmt: skip
    write_json(paths.schema, schema.model_copy(update={"features": as_boolean}))
    found = explain(paths, LONG_S)
    drawn = {one.column: one for one in found.dependence}
    if value:
        assert drawn["noise"].at == ("false", "true") and found.notes == ()
        assert sum(drawn["noise"].shares) == pytest.approx(1.0) and drawn["noise"].kind == "categorical"
    else:
        assert "noise" not in drawn
        assert found.notes == ("Not drawn, since all rows of the sample have the same value: noise.",)
    sample, notes = draw_sample(paths, schema, 100, 7), []
    late = Models(models=(), schema=schema, sample=sample, seed=7, until=0.0, notes=notes)
    dependence_of(late, user_columns(schema), found.importances[:2], None)
    assert notes == ["There was no time to draw shared, when."]


def test_a_model_without_time_for_some_columns_does_not_decide_their_order(run: RunPaths) -> None:
    columns = user_columns(read_schema(run))
    whole = {"noise": [0.1], "shared": [0.4], "town": [0.2], "when": [0.3]}
    found = ranked(columns, {"trees": whole, "neural": {"noise": [-0.1]}}, ("trees", "neural"), "rmse")
    assert [one.column for one in found] == ["shared", "when", "town", "noise"]
    assert set(found[-1].models) == {"trees", "neural"}


def test_models_for_which_there_is_no_time_are_left_out_and_named(run: RunPaths) -> None:
    found = explain(run, 0.0)
    assert set(found.notes) >= {f"{name} is left out: the time was over." for name in ("trees", "neural")}
    assert (found.importances, found.dependence, found.models) == ((), (), ())


@pytest.mark.process
def test_without_any_model_the_command_says_so_and_leaves_no_file(run: RunPaths, tmp_path: Path) -> None:
    paths = RunPaths(root=tmp_path / "run")
    shutil.copytree(run.root, paths.root, ignore=shutil.ignore_patterns("explanations.json", "model.*"))
    command = [sys.executable, "-m", "sparkgpu.predict.explain", str(paths.root), "--seconds", str(LONG_S)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * LONG_S)
    assert ended.returncode == 5 and ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"sparkgpu: {paths.root}: nothing could be explained. ")
    assert "trees is left out: " in ended.stderr and "neural is left out: " in ended.stderr
    assert not paths.explanations.exists()


@pytest.mark.process
def test_a_wide_table_of_many_classes_with_weights_and_seeds_is_explained_by_its_leading_columns(
    tmp_path: Path,
) -> None:
    paths = planted_run(
        tmp_path / "run", "multiclass", noises=120, num_classes=12, weighted=True, seeds=2,
        models=(("trees", "lightgbm"),),
    )  # fmt: skip
    found = explain(paths, LONG_S)
    assert (found.metric, found.columns, len(found.importances)) == ("log_loss", 123, 40)
    assert {one.column for one in found.importances[:3]} == {"shared", "when", "town"}
    assert found.pair is None
    assert found.notes[0] == "trees has 2 finished trials; the first, trees-s7, is shown."
    assert found.notes[1].startswith("Of 123 columns the 40 that cost most in a first pass are shown")
    assert found.dependence[0].class_name in read_schema(paths).classes


@pytest.mark.process
def test_a_regression_is_explained_in_its_own_unit(tmp_path: Path) -> None:
    paths = planted_run(tmp_path / "run", "regression", models=(("trees", "xgboost"),))
    found = explain(paths, LONG_S)
    assert found.metric == "rmse"
    assert means(found, "trees")["shared"] > 1.0  # it moves the target by two for each of its deviations
    curve = found.dependence[0].curves["trees"]
    assert found.dependence[0].class_name is None and curve[-1] - curve[0] > 5


def test_the_process_refuses_a_folder_without_a_finished_run_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparkgpu.predict.explain", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"sparkgpu: {tmp_path}: it holds no metrics.json. Give the folder of a finished run.\n"
    )


def test_a_sample_of_rare_rows_holds_them_with_weights_that_restore_their_share(
    run: RunPaths, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = RunPaths(root=tmp_path)
    shutil.copytree(run.table, paths.table)
    file = paths.split("test") / "part-00000.parquet"
    table = pq.read_table(file, partitioning=None)
    label_N = np.zeros(len(table), np.int32)
    label_N[:20] = 1
    place = table.column_names.index("label")
    pq.write_table(table.set_column(place, "label", pa.array(label_N)), file)
    sample = draw_sample(paths, read_schema(run), 100, seed=7)
    assert sample.weight_N is not None and len(sample.rows.label_N) == 100
    assert int(sample.rows.label_N.sum()) == 20  # of 25 that were wanted
    share = sample.weight_N[sample.rows.label_N == 1].sum() / sample.weight_N.sum()
    assert share == pytest.approx(20 / len(table))
    again = draw_sample(paths, read_schema(run), 100, seed=7)
    assert (again.rows.row_id_N == sample.rows.row_id_N).all()


def importance(mean: float, std: float | None, share: float) -> Importance:
    return Importance(mean=mean, std=std, shuffles=5, share=share)


def test_a_clear_difference_of_trees_and_network_is_a_sentence() -> None:
    pair = ("trees", "neural")
    found = {"trees": importance(0.021, 0.001, 0.18), "neural": importance(0.008, 0.001, 0.06)}
    assert differs("capital_gain", pair, found, "roc_auc") == (
        "capital_gain matters more to trees (18\N{NO-BREAK SPACE}% of its importance, 0.021 ROC AUC) than to "
        "neural (6\N{NO-BREAK SPACE}% of "
        "its importance, 0.0080 ROC AUC)."
    )
    assert differs("x", pair, {**found, "neural": importance(0.014, 0.001, 0.12)}, "roc_auc") is None
    assert differs("x", pair, {**found, "trees": importance(0.021, 0.008, 0.18)}, "roc_auc") is None
    assert differs("x", pair, {**found, "neural": importance(0.020, 0.001, 0.06)}, "roc_auc") is None
    assert differs("x", pair, {**found, "trees": importance(0.021, None, 0.18)}, "roc_auc") is None
    assert differs("x", pair, {"trees": found["trees"]}, "roc_auc") is None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_the_primary_metric_alone_is_that_of_the_scorer(task: str, weighted: bool) -> None:
    random = np.random.default_rng(2)
    num_classes = {"binary": 2, "multiclass": 5, "regression": 0}[task]
    label_N = random.integers(0, num_classes, 300) if num_classes else random.normal(size=300)
    values = random.dirichlet(np.ones(num_classes), 300) if num_classes else random.normal(size=300)
    if num_classes == 2:
        values[:, 1] = values[:, 1].round(1)  # ties
        values[:, 0] = 1 - values[:, 1]
    weight_N = random.integers(0, 4, 300).astype(float) if weighted else None
    found = metrics.primary_value(task, label_N, values, weight_N)  # type: ignore[arg-type]
    whole = metrics.compute(task, label_N, values, weight_N)  # type: ignore[arg-type]
    assert found == pytest.approx(whole[metrics.primary(task)], rel=1e-12)  # type: ignore[arg-type]
