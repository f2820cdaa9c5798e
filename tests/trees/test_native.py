"""The engines `xgboost`, `lightgbm` and `catboost` on small planted tables: what no tree may lose."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_trees import COLORS, Outcome, Table, bound, cpu_lane, outcome, planned, table

from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.errors import DeviceError, TrialError
from sparkgpu.core.host.gpus import Gpu, Survey
from sparkgpu.core.plan.gpu_memory import tree_bytes
from sparkgpu.core.plan.make_plan import GIB
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.files import read_json
from sparkgpu.core.table.rows import read_rows
from sparkgpu.trees.boosting import Split, feature_frame
from sparkgpu.trials.engine import Platform, load_fitted, make_engine
from sparkgpu.trials.loop import run_trials
from sparkgpu.trials.saved_model import check_saved_model


def fit(planted: Table, engine: str, **settings: Any) -> Outcome:
    """One trial, as a lane's worker runs it."""
    name = f"trees-{len(list(planted.paths.root.glob('trials/*')))}"
    trial = planned(planted, name, engine, **settings)
    return outcome(planted, name, make_engine(engine, Platform()).run(trial))


def noisy(root: Path) -> Table:
    """One number of four tells a little of the class."""
    random = np.random.default_rng(7)
    signal_NF = random.normal(size=(2000, 4))
    label_N = (signal_NF[:, 0] + 2 * random.normal(size=2000) > 0).astype(int)
    return table(root, label_N, {f"x{f}": signal_NF[:, f] for f in range(4)})


def test_categories_are_categories_and_not_numbers_in_an_order(engine: str, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    levels = tuple(f"shop {number:02}" for number in range(24))
    code_N = random.integers(0, len(levels), 6000)
    label_N = random.permutation(np.arange(len(levels)) % 2)[code_N]  # no order of the shops tells it
    words = table(tmp_path / "words", label_N, texts={"shop": (np.array(levels)[code_N], levels)})
    codes = table(tmp_path / "codes", label_N, {"shop": code_N.astype(float)})
    assert fit(words, engine).accuracy() == 1.0  # one cut is enough
    assert fit(codes, engine).accuracy() < 0.8


def test_gaps_are_gaps_and_not_a_number_or_a_word(engine: str, tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    value_N, label_N = random.normal(size=4000), random.integers(0, 2, 4000)
    word_N = np.where(label_N == 1, None, random.choice(COLORS, 4000))
    gappy = table(tmp_path / "gaps", label_N, {"x": np.where(label_N == 1, np.nan, value_N)})
    filled = table(tmp_path / "filled", label_N, {"x": np.where(label_N == 1, 0.0, value_N)})
    words = table(tmp_path / "words", label_N, texts={"color": (word_N, COLORS)})
    assert fit(gappy, engine).accuracy() >= 0.98
    assert fit(filled, engine).accuracy() < 0.9  # one cut cannot single out a value in the middle
    assert fit(words, engine, max_depth=3).accuracy() == 1.0


def test_a_row_of_weight_two_counts_as_the_row_twice(exact_engine: str, tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    # Few values, so that no cut depends on how many rows there are.
    value_N = random.integers(0, 8, 3000).astype(float)
    label_N = value_N + random.normal(size=3000)
    weight_N = np.where(label_N > value_N, 2.0, 1.0)  # so that weights move every leaf
    split_N = np.array(["train", "train", "train", "valid", "test"])[np.arange(3000) % 5]
    once_N = np.arange(3000)
    twice_N = np.repeat(once_N, np.where(split_N == "train", weight_N.astype(int), 1))

    def predicted(name: str, row_N: Any, **more: Any) -> Any:
        columns = {"x": value_N[row_N]}
        planted = table(tmp_path / name, label_N[row_N], columns, split_N=split_N[row_N], **more)
        return fit(planted, exact_engine, ntrees=5, max_depth=3, learn_rate=0.5).test

    weighted = predicted("weighted", once_N, weight_N=weight_N)
    np.testing.assert_allclose(weighted, predicted("repeated", twice_N), atol=1e-4)
    assert np.abs(weighted - predicted("plain", once_N)).min() > 0.05


def test_trees_without_gain_end_the_training_and_the_best_number_predicts(
    engine: str, tmp_path: Path
) -> None:
    planted = noisy(tmp_path)
    settings: dict[str, Any] = {"max_depth": 4, "learn_rate": 0.1}
    if engine == "catboost":
        settings["grow_policy"] = "symmetric"
    found = fit(planted, engine, ntrees=1000, early_stopping_rounds=12, **settings)
    best = found.record.best_iteration
    assert best > 1 and found.curve[-1][0] == best + 12 < 1000
    assert found.log_loss() == pytest.approx(dict(found.curve)[best], rel=1e-5)
    if engine != "catboost":  # it adds noise to its gains
        assert best == min(found.curve, key=lambda point: point[1])[0]
        cut = fit(planted, engine, ntrees=best, **settings)
        np.testing.assert_allclose(found.test, cut.test, atol=1e-7)


def test_catboost_counts_a_row_of_weight_two_as_more_than_one(tmp_path: Path) -> None:
    pytest.importorskip("catboost")
    label_N = np.tile([0.0, 0.0, 1.0], 1000)
    table_of = {"x": np.arange(3000.0) % 2}
    weighted = table(tmp_path / "weighted", label_N, table_of, weight_N=np.where(label_N > 0, 2.0, 1.0))
    plain = table(tmp_path / "plain", label_N, table_of)
    assert fit(weighted, "catboost").test.mean() == pytest.approx(1 / 2, abs=0.01)
    assert fit(plain, "catboost").test.mean() == pytest.approx(1 / 3, abs=0.01)


def test_catboost_leaves_the_network_beside_it_what_the_plan_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip("sparkgpu.trees.catboost_library")
    trial = planned(noisy(tmp_path), "trees", "catboost", tree_method="gpu_hist")
    cards = tuple(
        Gpu(index=index, uuid=f"GPU-{index}", title="NVIDIA A100", memory_bytes=memory, used_bytes=40 * GIB)
        for index, memory in ((1, 80 * GIB), (2, None), (3, 40 * GIB + 2**20))
    )
    monkeypatch.setattr(library, "find_gpus", lambda: Survey(gpus=cards))

    def part(uuid: str, *, ended: bool = False, in_turn: bool = False) -> float:
        lane = trial.lane.model_copy(update={"cuda_visible_devices": uuid, "in_turn": in_turn})
        given = library._parameters(replace(trial, lane=lane, cores_are_free=lambda: ended))
        return float(given["gpu_ram_part"])

    assert part("GPU-1") * 40 * GIB == pytest.approx(tree_bytes(trial.schema, trial.parameters))
    assert part("GPU-1") < 0.05
    # Alone, and where the driver does not tell or too little is free, it takes what it takes by itself.
    assert part("GPU-1", ended=True) == part("GPU-1", in_turn=True) == part("GPU-2") == part("GPU-3") == 0.95


def test_xgboost_makes_bins_where_it_trains(tmp_path: Path) -> None:
    library = pytest.importorskip("sparkgpu.trees.xgboost_library")
    planted = noisy(tmp_path)
    rows = read_rows(planted.paths, planted.schema, "train")
    split = Split(features=feature_frame(rows, planted.schema), label_N=rows.label_N, weight_N=None)
    for method, on_cpu in (("hist", True), ("gpu_hist", False)):
        trial = planned(planted, "trees", "xgboost", tree_method=method)
        made = library._matrix(split, trial, binned=True)
        assert (type(made).__name__ == "QuantileDMatrix") is on_cpu, method


def test_without_early_stopping_all_trees_stand_and_predict(engine: str, tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    label_N = random.integers(0, 2, 500)  # nothing to learn: validation is best at once
    planted = table(tmp_path, label_N, {"x": random.normal(size=500)})
    found = fit(planted, engine, ntrees=30, max_depth=4, learn_rate=0.3)
    assert [step for step, _ in found.curve] == list(range(1, 31))
    assert found.record.best_iteration < 30
    assert found.log_loss() == pytest.approx(found.curve[-1][1], rel=1e-5)


def test_gpu_hist_without_a_gpu_is_refused_and_nothing_trains_on_the_cpu_instead(
    engine: str, tmp_path: Path
) -> None:
    planted = table(tmp_path, np.arange(100) % 2, {"x": np.arange(100.0)})
    if engine != "lightgbm":
        from sparkgpu.core.host.devices import find_machine

        if find_machine().gpus:
            pytest.skip("this machine has a GPU")
    with pytest.raises(DeviceError) as refused:
        fit(planted, engine, tree_method="gpu_hist")
    assert str(refused.value).startswith(
        {
            "xgboost": "gpu_hist was asked for, but xgboost trained on 'cpu'. Run `pip uninstall",
            "lightgbm": "gpu_hist was asked for, but lightgbm trains on the CPU here",
            "catboost": "gpu_hist was asked for, but CatBoost cannot use the GPU",
        }[engine]
    )
    assert not planted.paths.trial("trees-0").predictions.exists()


def test_an_engine_that_is_not_installed_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setitem(sys.modules, engine, None)
    monkeypatch.delitem(sys.modules, f"sparkgpu.trees.{engine}_library", raising=False)
    planted = table(tmp_path, np.arange(10) % 2, {"x": np.arange(10.0)})
    package = re.escape(str(ENGINES.find(engine).package))
    with pytest.raises(DeviceError, match=f"pip install '{package}'"):
        fit(planted, engine)


@pytest.mark.parametrize("early_stopping_rounds", [0, 5])
def test_a_loaded_model_predicts_what_the_trial_predicted(
    engine: str, tmp_path: Path, early_stopping_rounds: int
) -> None:
    random = np.random.default_rng(9)
    word_N, value_N = random.choice(COLORS, 900), random.normal(size=900)
    label_N = np.digitize(value_N + (word_N == COLORS[0]) + random.normal(size=900), [0.0, 1.0])
    planted = table(tmp_path, label_N, {"x": value_N}, {"color": (word_N, COLORS)})
    found = fit(planted, engine, ntrees=60, learn_rate=0.3, early_stopping_rounds=early_stopping_rounds)
    model = ENGINES.find(engine).loaded().load(planted.paths.trial("trees-0").root, planted.schema)
    again = model.predict(read_rows(planted.paths, planted.schema, "test"))
    np.testing.assert_array_equal(again, found.test)
    saved = check_saved_model(found.record, planted.paths, planted.schema)
    assert (saved.rows, saved.largest_difference) == (180, 0.0)


def test_a_trial_names_the_device_that_trained_it_and_not_the_lanes(engine: str, tmp_path: Path) -> None:
    planted = table(tmp_path, np.arange(100) % 2, {"x": np.arange(100.0)})
    lane = cpu_lane().model_copy(update={"device": "cuda:0"})
    trial = replace(planned(planted, "trees-0", engine), lane=lane)
    made = make_engine(engine, Platform())
    plan = Plan(preset="fast", lanes=(lane,), trials=(trial.spec,), reasons={})
    assert run_trials(plan, [trial.spec], planted.paths, trial.events, lambda spec: made.run(trial))
    fit = read_json(planted.paths.trial("trees-0").fit)
    assert (fit["devices"], fit["on_gpu"]) == (["cpu"], False)


def test_a_trial_whose_saved_model_predicts_other_values_is_no_success(engine: str, tmp_path: Path) -> None:
    value_N = np.random.default_rng(11).normal(size=400)
    planted = table(tmp_path, (value_N > 0).astype(int), {"x": value_N})
    record = fit(planted, engine).record
    other = table(tmp_path / "other", (value_N > 0.1).astype(int), {"x": value_N})
    fit(other, engine)
    shutil.copytree(other.paths.trial("trees-0").root, planted.paths.trial("other").root)
    shutil.copy(planted.paths.trial("trees-0").predictions, planted.paths.trial("other").root)
    with pytest.raises(TrialError, match="other: the saved model predicts other values than the trained one"):
        check_saved_model(record.model_copy(update={"trial": "other"}), planted.paths, planted.schema)


def test_a_depth_of_zero_is_no_limit(exact_engine: str, tmp_path: Path) -> None:
    value_N = np.random.default_rng(10).permutation(np.arange(4096.0))
    label_N = value_N // 64  # 64 stairs: a tree of depth 2 has leaves for four
    planted = table(tmp_path, label_N, {"x": value_N})
    settings = {"ntrees": 1, "learn_rate": 1.0, "min_rows": 1.0}
    shallow, deep = (fit(planted, exact_engine, max_depth=depth, **settings) for depth in (2, 0))
    labels_N = planted.labels("test")
    assert np.abs(shallow.test - labels_N).mean() > 3
    assert np.abs(deep.test - labels_N).mean() < 0.5


@pytest.mark.parametrize("distribution", ["poisson", "gamma", "tweedie"])
def test_trees_of_a_distribution_predict_means_in_the_targets_unit(
    exact_engine: str, distribution: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(12)
    group_N = np.repeat([0.0, 1.0, 2.0], 2000)
    label_N = random.gamma(2.0, np.array([1.0, 20.0, 400.0])[group_N.astype(int)])
    settings: dict[str, Any] = {
        "distribution": distribution, "max_depth": 2, "ntrees": 60, "learn_rate": 0.5, "min_rows": 1.0,
    }  # fmt: skip
    split_N = np.array(["train", "train", "train", "valid", "test"])[np.arange(6000) % 5]
    means = [label_N[(group_N == group) & (split_N == "train")].mean() for group in range(3)]
    for unit in (1e-3, 1e5):  # as the same trees
        planted = table(tmp_path / str(unit), label_N * unit, {"x": group_N})
        found = fit(planted, exact_engine, **settings)
        expected = np.array(means)[group_N[split_N == "test"].astype(int)]
        np.testing.assert_allclose(found.test / unit, expected, rtol=0.02)
        rmse = np.sqrt(np.mean((found.valid - planted.labels("valid")) ** 2))
        assert found.curve[-1][1] == pytest.approx(rmse, rel=1e-4)
        assert check_saved_model(found.record, planted.paths, planted.schema).largest_difference < 1e-9


def test_exact_trees_of_xgboost_need_a_depth(tmp_path: Path) -> None:
    planted = table(tmp_path, np.arange(100) % 2, {"x": np.arange(100.0)})
    with pytest.raises(TrialError, match=r"trees\.max_depth = 0 with trees\.tree_method"):
        fit(planted, "xgboost", max_depth=0, tree_method="exact")


def test_a_category_with_a_feature_of_mean_targets_is_numbers_to_xgboost(tmp_path: Path) -> None:
    library = pytest.importorskip("xgboost")
    random = np.random.default_rng(12)
    levels = tuple(f"shop {number:03}" for number in range(300))
    code_N = random.integers(0, len(levels), 3000)
    label_N = (code_N % 3 + random.normal(size=3000)).astype(float)
    shops = {"shop": (np.where(code_N == 5, None, np.array(levels)[code_N]), levels)}
    made = table(tmp_path, label_N, {"shop__mean": (code_N % 3).astype(float)}, shops)
    first, *others = made.schema.features
    planted = bound(made, features=(first.model_copy(update={"means_of": "shop"}), *others))
    found = fit(planted, "xgboost", ntrees=5, max_depth=3)
    booster = library.Booster(model_file=found.folder / "model.ubj")
    assert dict(zip(booster.feature_names, booster.feature_types, strict=True)) == {
        "shop__mean": "float", "shop": "float",
    }  # fmt: skip
    test = read_rows(planted.paths, planted.schema, "test")
    model = load_fitted("xgboost", found.folder, planted.schema)
    np.testing.assert_allclose(model.predict(test), found.test, atol=1e-6)
