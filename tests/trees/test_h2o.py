"""The engine `h2o-xgboost` on small planted tables, all trials in one H2O context."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_trees import COLORS, Outcome, Table, outcome, table

from sparkgpu.host.scratch import scratch_folder
from sparkgpu.rundir.files import read_json
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.rows import read_rows

pytestmark = pytest.mark.spark

ROWS = 2000
BY_H2O = ("native", "java")
FREES_CORES = "second_core"
PARSED = ("parsed_leaves", "parsed_fold")
FOLD = {"fold": 1, "parsed_fold": 1}
SPLITS = np.array(["train", "train", "train", "valid", "test"])[np.arange(ROWS) % 5]


def tables(root: Path) -> dict[str, Table]:
    random = np.random.default_rng(6)
    label_N = random.integers(0, 2, ROWS)
    gappy_N = np.where(label_N == 1, np.nan, random.normal(size=ROWS))
    few_N = random.integers(0, 8, ROWS).astype(float)
    value_N = few_N + random.normal(size=ROWS)
    weight_N = np.where(value_N > few_N, 2.0, 1.0)
    twice_N = np.repeat(np.arange(ROWS), np.where(SPLITS == "train", weight_N.astype(int), 1))
    signal_NF = random.normal(size=(ROWS, 3))
    noisy_N = (signal_NF[:, 0] + 2 * random.normal(size=ROWS) > 0).astype(int)
    color_N = random.choice(np.array([*COLORS, None], dtype=object), ROWS)
    code_N = np.array([0 if color is None else COLORS.index(color) for color in color_N])
    three_N = (code_N + np.digitize(signal_NF[:, 0], [-0.5, 0.5])) % 3
    odd_N = np.where(color_N == None, 0, code_N % 2)  # noqa: E711
    number_N = np.array([None if color is None else NUMBERS[COLORS.index(color)] for color in color_N])
    numbers = {f"x{f}": signal_NF[:, f] for f in range(3)}
    return {
        "gaps": table(root / "gaps", label_N, {"x": gappy_N}),
        "weighted": table(root / "weighted", value_N, {"x": few_N}, weight_N=weight_N, split_N=SPLITS),
        "repeated": table(
            root / "repeated", value_N[twice_N], {"x": few_N[twice_N]}, split_N=SPLITS[twice_N]
        ),
        "noisy": table(root / "noisy", noisy_N, numbers),
        "three": table(root / "three", three_N, numbers, {"color": (color_N, COLORS)}),
        "odd": table(root / "odd", odd_N, None, {"color": (color_N, COLORS)}),
        "numbers": table(root / "numbers", odd_N, None, {"color": (number_N, NUMBERS)}),
        "folds": table(
            root / "folds",
            value_N,
            {"x": few_N, "gappy": gappy_N},
            {"color": (color_N, COLORS)},
            weight_N=weight_N / 3,
            fold_N=random.integers(0, 3, ROWS),
            parts=3,
        ),
    }


# H2O's own encoding reads these words as numbers, or fails at the word that is none.
NUMBERS = ("10", "(other)", "30", "4", "5", "60")
DEEPER = {"ntrees": 5, "max_depth": 3, "learn_rate": 0.5}
STOPPED = {
    "ntrees": 500, "max_depth": 4, "learn_rate": 0.1, "early_stopping_rounds": 15, "score_tree_interval": 5,
}  # fmt: skip
LEAFWISE = {
    **STOPPED, "grow_policy": "lossguide", "max_depth": 0, "max_leaves": 20, "learn_rate": 0.3,
    "categorical_encoding": "sort_by_response",
}  # fmt: skip
SAMPLED = {
    **LEAFWISE, "ntrees": 400, "early_stopping_rounds": 0, "learn_rate": 0.05, "sample_rate": 0.8,
    "col_sample_rate_per_tree": 0.7,
}  # fmt: skip
FOLDED = {**SAMPLED, "ntrees": 20, "col_sample_rate": 0.5, "categorical_encoding": "one_hot_internal"}
BEST_OF = {"fewer": "stopped", "leaves_fewer": "leaves"}
TRIALS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "gaps": ("gaps", {}, False),
    "weighted": ("weighted", DEEPER, False),
    "repeated": ("repeated", DEEPER, False),
    "stopped": ("noisy", STOPPED, False),
    "fewer": ("noisy", STOPPED, False),
    "leaves": ("three", LEAFWISE, True),
    "leaves_fewer": ("three", LEAFWISE, True),
    "first_core": ("three", SAMPLED, True),
    FREES_CORES: ("three", SAMPLED, True),
    "sorted": ("odd", {"categorical_encoding": "sort_by_response"}, False),
    "sorted_numbers": ("numbers", {"categorical_encoding": "sort_by_response"}, False),
    "by_number": ("numbers", {"categorical_encoding": "label_encoder", "max_depth": 3}, False),
    "by_word": ("odd", {"categorical_encoding": "label_encoder"}, False),
    "java": ("three", {"ntrees": 20, "max_depth": 4, "learn_rate": 0.3}, False),
    "native": ("three", {"ntrees": 20, "max_depth": 4, "learn_rate": 0.3}, True),
    "parsed_leaves": ("three", LEAFWISE, True),
    "fold": ("folds", FOLDED, False),
    "parsed_fold": ("folds", FOLDED, False),
}  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    return tables(tmp_path_factory.mktemp("h2o"))


@pytest.fixture(scope="module")
def found(
    java: Path, planted: dict[str, Table], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    root = tmp_path_factory.mktemp("trials")
    trials = [
        {
            "run_dir": str(planted[name].paths.root),
            "name": trial,
            "settings": settings,
            "native": native,
            "by_h2o": trial in BY_H2O,
            "parsed": trial in PARSED,
            "fold": FOLD.get(trial),
            "frees_cores": trial == FREES_CORES,
            "ntrees_of": BEST_OF.get(trial),
        }
        for trial, (name, settings, native) in TRIALS.items()
    ]
    (root / "trials.json").write_text(json.dumps(trials))
    script = Path(__file__).with_name("h2o_trials.py")
    with scratch_folder() as scratch:
        ended = subprocess.run(
            [sys.executable, str(script), str(scratch), str(root / "trials.json")],
            capture_output=True, text=True, timeout=200, env={**os.environ, "JAVA_HOME": str(java)},
        )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-3000:]
    outcomes = {}
    for trial, (name, _, _) in TRIALS.items():
        record = FitRecord.model_validate(read_json(planted[name].paths.trial(trial).fit))
        outcomes[trial] = outcome(planted[name], trial, record)
    return outcomes


def test_gaps_are_gaps_and_not_a_number(found: dict[str, Outcome]) -> None:
    label_N = np.random.default_rng(6).integers(0, 2, ROWS)
    assert (found["gaps"].test.argmax(axis=1) == label_N[SPLITS == "test"]).all()  # by one cut


def test_a_row_of_weight_two_counts_as_the_row_twice(found: dict[str, Outcome]) -> None:
    np.testing.assert_allclose(found["weighted"].test, found["repeated"].test, atol=1e-4)
    assert found["weighted"].test.std() > 1  # and it learned something


def test_trees_without_gain_end_the_training(found: dict[str, Outcome]) -> None:
    stopped = found["stopped"]
    best = stopped.record.best_iteration
    assert best == min(stopped.curve, key=lambda point: point[1])[0]
    # H2O stops when the last 3 of its looks, averaged, were no better: some looks later than the best.
    assert best < stopped.curve[-1][0] < 250
    record = stopped.record
    grown = record.train_rows_per_s * record.fit_s / record.train_rows
    assert grown == pytest.approx(stopped.curve[-1][0])


@pytest.mark.parametrize(("stopped", "fewer"), [("stopped", "fewer"), ("leaves", "leaves_fewer")])
def test_a_model_is_cut_back_to_its_best_trees(found: dict[str, Outcome], stopped: str, fewer: str) -> None:
    best = found[stopped].record.best_iteration
    assert found[stopped].curve[-1][0] > best == found[fewer].curve[-1][0]
    np.testing.assert_array_equal(found[stopped].valid, found[fewer].valid)
    np.testing.assert_array_equal(found[stopped].test, found[fewer].test)


def test_trees_that_take_a_free_core_are_the_same_trees(found: dict[str, Outcome]) -> None:
    """`h2o_trials` fails unless they take it."""
    np.testing.assert_array_equal(found["first_core"].valid, found[FREES_CORES].valid)
    assert found["first_core"].curve == found[FREES_CORES].curve


@pytest.mark.parametrize(
    "trial", ["stopped", "leaves", "sorted", "sorted_numbers", "by_number", "by_word", "java"]
)
def test_the_saved_model_predicts_what_the_trial_predicted(
    found: dict[str, Outcome], planted: dict[str, Table], trial: str
) -> None:
    from sparkgpu.engines.trees.h2o_xgboost import H2OXGBoost

    of = planted[TRIALS[trial][0]]
    model = H2OXGBoost.load(of.paths.trial(trial).root, of.schema)
    again = model.predict(read_rows(of.paths, of.schema, "test"))
    np.testing.assert_allclose(again, found[trial].test, atol=1e-6)


@pytest.mark.parametrize("trial", ["stopped", "leaves", "weighted"])  # two classes, three, numbers
def test_trees_that_are_applied_in_several_passes_predict_the_same(
    found: dict[str, Outcome], planted: dict[str, Table], trial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkgpu.engines.trees import mojo_booster
    from sparkgpu.engines.trees.h2o_xgboost import H2OXGBoost

    of = planted[TRIALS[trial][0]]
    rows = read_rows(of.paths, of.schema, "test")
    model = H2OXGBoost.load(of.paths.trial(trial).root, of.schema)
    predicted = []
    for nodes in (1, 300, 10**9):
        monkeypatch.setattr(mojo_booster, "_NODES_OF_A_PASS", nodes)
        predicted.append(model.predict(rows))
    np.testing.assert_array_equal(predicted[0], predicted[2])
    np.testing.assert_array_equal(predicted[1], predicted[2])


def test_one_cut_parts_levels_that_lie_between_each_other(
    found: dict[str, Outcome], planted: dict[str, Table]
) -> None:
    assert found["sorted"].accuracy(planted["odd"]) == 1
    assert found["sorted_numbers"].accuracy(planted["numbers"]) == 1
    assert found["by_word"].accuracy(planted["odd"]) < 0.8


@pytest.mark.parametrize(("trial", "parsed"), [("leaves", "parsed_leaves"), ("fold", "parsed_fold")])
def test_rows_that_h2o_reads_in_place_are_the_rows_that_it_parses(
    found: dict[str, Outcome], planted: dict[str, Table], trial: str, parsed: str
) -> None:
    """Categories as numbers and one by one, gaps, weights, folds, files whose rows lie between each other."""
    of = planted[TRIALS[trial][0]].paths
    trees, levels = zip(
        *(_inside(of.trial(name).root / "model.zip") for name in (trial, parsed)), strict=True
    )
    assert trees[0] == trees[1]
    assert levels[0] == levels[1]
    assert found[trial].curve == found[parsed].curve
    np.testing.assert_array_equal(found[trial].valid, found[parsed].valid)
    np.testing.assert_array_equal(found[trial].test, found[parsed].test)
    assert found[trial].test.std() > 0.1


def _inside(mojo: Path) -> tuple[bytes, dict[str, bytes]]:
    """A MOJO's trees and the levels of its categories."""
    with zipfile.ZipFile(mojo) as opened:
        names = [name for name in opened.namelist() if name.startswith("domains/")]
        return opened.read("boosterBytes"), {name: opened.read(name) for name in names}


@pytest.mark.parametrize("trial", ["gaps", "weighted", "java"])  # two classes, numbers, three classes
def test_h2o_scores_no_row_after_the_last_tree(
    found: dict[str, Outcome], planted: dict[str, Table], trial: str
) -> None:
    saved = planted[TRIALS[trial][0]].paths.trial(trial).root / "model.zip"
    with zipfile.ZipFile(saved) as mojo:
        output = json.loads(mojo.read("experimental/modelDetails.json"))["output"]
    for metrics in (output["training_metrics"], output["validation_metrics"]):
        assert (metrics["nobs"], metrics["MSE"]) == (0, "NaN")


def test_saved_trees_predict_and_are_held_against_h2o(found: dict[str, Outcome]) -> None:
    for trial, one in found.items():
        held = one.record.saved_model
        if trial in BY_H2O:
            assert held is None
        else:
            assert held is not None
            assert held.rows > 300
            assert held.largest_difference < 1e-5


def test_predictions_of_the_native_library_are_those_of_java(found: dict[str, Outcome]) -> None:
    assert found["java"].test.shape[1] == 3
    np.testing.assert_allclose(found["native"].test, found["java"].test, atol=1e-6)
    np.testing.assert_allclose(found["native"].valid, found["java"].valid, atol=1e-6)
