"""A run's results are one typed record, which reads files of earlier versions and writes only set keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.curve import CurvePoint, curve_as_csv, read_curve
from sparkgpu.core.rundir.metrics_json import read_results, write_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.leaderboard import metric_cells
from sparkgpu.score.metrics import best


def written() -> dict[str, Any]:
    """A metrics.json of version 0.1.0, from before row weights."""
    identity = {"seed": 7, "fold": None, "lane": 0, "strategy": "single", "devices": ["cpu"]}
    scores = {"valid": {"rmse": 1.5, "r2": None}, "test": {"rmse": 2.0, "r2": 0.5}}
    return {
        "schema_version": 1,
        "run": {
            "name": "x", "started_at": "2026-11-21T03:00:00Z", "wall_s": 1.0, "sparkgpu": "0.1.0",
            "versions": {"h2o": "3.46"},
            "host": {
                "system": "Linux", "processor": "", "cores": 2, "available_memory_bytes": 1,
                "gpus": ["NVIDIA H100"], "driver": "570",
            },
            "peak_rss_bytes": 1,
        },
        "data": {
            "source": "ü.csv", "rows": 9, "rows_refused": 0, "num_features": 1, "target": "y",
            "task": "regression", "classes": [], "splits": {"train": 3, "valid": 3, "test": 3},
            "fingerprint": "f00d",
        },
        "models": [
            {"name": "trees", "engine": "lightgbm", "status": "done", "trials": ["trees-s7"],
             "metrics": scores, "std": {"test": {"rmse": None, "r2": None}}},
            {"name": "neural", "engine": "torch", "status": "failed", "trials": [],
             "metrics": {"valid": {}, "test": {}}, "std": {"test": {}}},
            {"name": "my own", "engine": None, "status": "left out", "trials": [],
             "metrics": {"valid": {}, "test": {"rmse": 3.0}}, "std": {"test": {}}},
            {"name": "blend", "engine": "blend", "status": "done", "trials": ["trees-s7"],
             "weights": {"trees": 0.75, "my own": 0.25}, "metrics": scores, "std": {"test": {}}},
        ],
        "trials": [
            {"name": "trees-s7", "model": "trees", "engine": "lightgbm", **identity, "status": "done",
             "metrics": scores, "fit_s": 0.5, "predict_s": 0.25, "train_rows_per_s": 10.0,
             "peak_host_bytes": 1, "peak_device_bytes": None, "best_iteration": 3,
             "native_parameters": {"tree_method": "hist"},
             "device_proof": {"ranks": [{"rank": 0}], "gpu_id": None}, "notes": ["said so"]},
            {"name": "neural-s7", "model": "neural", "engine": "torch", **identity, "status": "failed",
             "error": "out of memory", "metrics": {"valid": {}, "test": {}}},
        ],
        "comparison": {
            "metric": "rmse", "leader": "trees",
            "pairs": [
                {"a": "blend", "b": "trees", "difference": None, "ci95": [None, None], "verdict": "tie",
                 "method": "paired bootstrap", "sentence": "tie"},
            ],
        },
        "cost": {"device_hours": 0.5, "energy_wh": None, "price": None},
        "phases_s": {"lane 0 trees": {"training": 0.5}, "run": {"scoring": 0.1}},
    }  # fmt: skip


def left_in(folder: Path, found: dict[str, Any]) -> RunPaths:
    paths = RunPaths(root=folder)
    paths.metrics.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return paths


def test_what_was_read_is_written_again_to_the_letter_without_keys_of_later_versions(
    tmp_path: Path,
) -> None:
    paths = left_in(tmp_path, written())
    before = paths.metrics.read_bytes()
    results = read_results(paths)
    write_results(paths, results)
    assert paths.metrics.read_bytes() == before
    assert results.as_dict() == written()
    later = written() | {"later": 1}
    later["models"][0]["from_later"] = {"test": {"rmse": 1.9}}
    assert read_results(left_in(tmp_path, later)).as_dict() == written()
    with pytest.raises(ValueError, match="frozen"):
        results.run.wall_s = 2.0  # type: ignore[misc]


def test_attributes_tell_done_trials_from_failed_ones(tmp_path: Path) -> None:
    results = read_results(left_in(tmp_path, written()))
    assert [trial.name for trial in results.done()] == ["trees-s7"]
    assert results.done("neural") == ()
    assert [trial.error for trial in results.failed] == ["out of memory"]
    assert results.models[3].weights == {"trees": 0.75, "my own": 0.25}
    assert results.data.weighted is False


def test_a_file_that_cannot_be_understood_is_refused_in_one_sentence(tmp_path: Path) -> None:
    found = written()
    del found["trials"][0]["fit_s"]
    paths = left_in(tmp_path, found)
    with pytest.raises(ConfigError) as refused:
        read_results(paths)
    assert str(refused.value) == (
        f"{paths.metrics}: trials.0.done.fit_s: Field required. "
        "It is damaged, or of another version of sparkgpu; "
        f"`sparkgpu run --resume --out {tmp_path}` scores the run again."
    )


@pytest.mark.parametrize(
    ("metric", "values", "names"),
    [
        ("roc_auc", {"a": 0.5, "b": 0.75, "c": None}, ("b",)), ("log_loss", {"a": 0.5, "b": 0.75}, ("a",)),
        ("rmse", {"a": 2.0, "b": 1.0, "c": 1.0}, ("b", "c")), ("r2", {"a": None, "b": float("nan")}, ()),
    ],
)  # fmt: skip
def test_the_best_value_is_that_of_the_metrics_direction(
    metric: str, values: dict[str, float | None], names: tuple[str, ...]
) -> None:
    assert best(metric, values) == names


def test_models_of_any_name_stand_side_by_side_and_one_value_alone_is_not_the_best(tmp_path: Path) -> None:
    models = read_results(left_in(tmp_path, written())).models
    assert [(cell.value, cell.best) for cell in metric_cells(models)["rmse"]] == [
        (2.0, True), (None, False), (3.0, False), (2.0, True),
    ]  # fmt: skip
    assert not any(cell.best for cell in metric_cells(models[:2])["rmse"])


def test_a_learning_curve_is_read_as_it_was_written(tmp_path: Path) -> None:
    points = [
        CurvePoint(step=1, elapsed_s=None, train=0.7, valid=0.8),
        CurvePoint(step=2, elapsed_s=1.5, train=None, valid=0.1 + 0.2),
    ]
    file = tmp_path / "learning_curve.csv"
    file.write_text(curve_as_csv("log_loss", points), encoding="utf-8")
    assert file.read_text(encoding="utf-8").splitlines()[0] == "step,elapsed_s,metric,train,valid"
    assert read_curve(file) == ("log_loss", points)
    assert read_curve(tmp_path / "absent.csv") == ("", [])
