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
import pandas as pd
import pyarrow.parquet as pq
import pytest
from planted_trees import (
    COLORS,
    Outcome,
    Table,
    bound,
    interaction,
    outcome,
    steps_in_the_wrong_direction,
    table,
    waves,
)  # fmt: skip

from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.reservations import scratch_folder
from sparkgpu.core.rundir.files import read_record
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.rows import read_rows
from sparkgpu.h2o.mojo import MojoModel, load_mojo
from sparkgpu.trees.level_order import ordered_levels

pytestmark = pytest.mark.spark

ROWS = 2000
PARSED = ("parsed_leaves", "parsed_fold", "parsed_gamma")
FOLD = {"fold": 1, "parsed_fold": 1}
SPLITS = np.array(["train", "train", "train", "valid", "test"])[np.arange(ROWS) % 5]
# H2O's own encodings read some of these as numbers, and a CSV file hides the others.
ODD = (" line\nbreak ", '"a" b, c', "(other)", "10", "back\\slash", "Ünï")
GROUPS = (("up", "free"), ("down", "color"))
UNREADABLE = ("NA", "-", "n/a", "x", "y", "z")


def tables(root: Path) -> dict[str, Table]:
    random = np.random.default_rng(6)
    label_N = random.integers(0, 2, ROWS)
    gappy_N = np.where(label_N == 1, random.choice([np.nan, np.inf], ROWS), random.normal(size=ROWS))
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

    def renamed(texts: tuple[str, ...]) -> np.ndarray:
        named = {None: None, **dict(zip(COLORS, texts, strict=True))}
        return np.array([named[color] for color in color_N], dtype=object)

    def made(name: str, *columns: Any, **more: Any) -> Table:
        return table(root / name, *columns, **more)

    numbers = {f"x{f}": signal_NF[:, f] for f in range(3)}
    few, colors = {"x": few_N}, {"color": (color_N, COLORS)}
    folded = {"weight_N": weight_N / 3, "fold_N": random.integers(0, 3, ROWS), "parts": 3}
    return {
        "gaps": made("gaps", label_N, {"x": gappy_N}),
        "weighted": made("weighted", value_N, few, weight_N=weight_N, split_N=SPLITS),
        "repeated": made("repeated", value_N[twice_N], {"x": few_N[twice_N]}, split_N=SPLITS[twice_N]),
        "noisy": made("noisy", noisy_N, numbers),
        "three": made("three", three_N, numbers, colors),
        "odd": made("odd", odd_N, None, {"color": (renamed(ODD), ODD)}),
        "unreadable": made("unreadable", odd_N, None, {"color": (renamed(UNREADABLE), UNREADABLE)}),
        "amounts": made("amounts", 1e5 * random.gamma(2.0, np.exp(few_N)), few),
        "folds": made("folds", value_N, {**few, "gappy": gappy_N}, colors, **folded),
        "directions": bound(waves(root / "directions", numbers=False), monotone={"up": 1, "down": -1}),
        "apart": bound(waves(root / "apart", numbers=True), interactions=GROUPS),
    }


DEEPER = {"ntrees": 5, "max_depth": 3, "learn_rate": 0.5}
STOPPED = {
    "ntrees": 500, "max_depth": 4, "learn_rate": 0.1, "early_stopping_rounds": 15, "score_tree_interval": 5,
}  # fmt: skip
LEAFWISE = {
    **STOPPED, "grow_policy": "lossguide", "max_depth": 0, "max_leaves": 20, "learn_rate": 0.3,
    "categorical_encoding": "sort_by_response",
}  # fmt: skip
FOLDED = {
    **LEAFWISE, "ntrees": 20, "early_stopping_rounds": 0, "learn_rate": 0.05, "sample_rate": 0.8,
    "col_sample_rate": 0.5, "col_sample_rate_per_tree": 0.7, "categorical_encoding": "one_hot_internal",
}  # fmt: skip
AMOUNTS = {"ntrees": 60, "max_depth": 2, "learn_rate": 0.5, "min_rows": 1.0, "early_stopping_rounds": 20}
BEST_OF = {"fewer": "stopped", "leaves_fewer": "leaves"}
TRIALS: dict[str, tuple[str, dict[str, Any]]] = {
    "gaps": ("gaps", {}),
    "weighted": ("weighted", DEEPER),
    "repeated": ("repeated", DEEPER),
    "stopped": ("noisy", STOPPED),
    "fewer": ("noisy", STOPPED),
    "leaves": ("three", LEAFWISE),
    "leaves_fewer": ("three", LEAFWISE),
    "sorted": ("odd", {"categorical_encoding": "sort_by_response"}),
    "by_text": ("odd", {"categorical_encoding": "label_encoder"}),
    "one_hot": ("odd", DEEPER),
    "unreadable": ("unreadable", DEEPER),
    "parsed_leaves": ("three", LEAFWISE),
    "fold": ("folds", FOLDED),
    "parsed_fold": ("folds", FOLDED),
    **{name: ("amounts", {**AMOUNTS, "distribution": name}) for name in ("poisson", "gamma", "tweedie")},
    "parsed_gamma": ("amounts", {**AMOUNTS, "distribution": "gamma"}),
    "directions": ("directions", {**LEAFWISE, "ntrees": 60, "early_stopping_rounds": 0}),
    "apart": ("apart", {**LEAFWISE, "ntrees": 60, "early_stopping_rounds": 0}),
}


@pytest.fixture(scope="module")
def found(java: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    root, planted = tmp_path_factory.mktemp("trials"), tables(tmp_path_factory.mktemp("h2o"))
    trials = [
        {
            "run_dir": str(planted[name].paths.root), "name": trial, "settings": settings,
            "parsed": trial in PARSED, "fold": FOLD.get(trial), "ntrees_of": BEST_OF.get(trial),
        }
        for trial, (name, settings) in TRIALS.items()
    ]  # fmt: skip
    (root / "trials.json").write_text(json.dumps(trials))
    script = Path(__file__).with_name("h2o_trials.py")
    with scratch_folder() as scratch:
        ended = subprocess.run(
            [sys.executable, str(script), str(scratch), str(root / "trials.json")],
            capture_output=True, text=True, timeout=200,
            env={**os.environ, "JAVA_HOME": str(java), "LC_ALL": "POSIX", "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-3000:]
    return {
        trial: outcome(planted[name], trial, read_record(planted[name].paths.trial(trial).fit, FitRecord))
        for trial, (name, _) in TRIALS.items()
    }


def predicted_by_java(trial: Outcome) -> np.ndarray:
    """The predictions of the test rows by the saved model, in a Java process of its own."""
    of = trial.planted
    return MojoModel(trial.folder / "model.zip", of.schema).predict(read_rows(of.paths, of.schema, "test"))


def test_trees_of_h2o_keep_the_rules_of_a_run(found: dict[str, Outcome]) -> None:
    ruled, apart = (
        load_mojo(found[name].folder, found[name].planted.schema) for name in ("directions", "apart")
    )
    wrong = steps_in_the_wrong_direction(found["directions"].planted, ruled.predict)
    assert wrong["up"] == wrong["down"] == 0 < wrong["free"]
    assert interaction(apart.predict, 0, 1) < 1e-5 and interaction(apart.predict, 1, 2) < 1e-5
    assert interaction(apart.predict, 0, 2) > 1e-2


def test_gaps_and_infinite_numbers_are_missing_values(found: dict[str, Outcome]) -> None:
    assert found["gaps"].accuracy() == 1  # by one cut


def test_a_row_of_weight_two_counts_as_the_row_twice(found: dict[str, Outcome]) -> None:
    np.testing.assert_allclose(found["weighted"].test, found["repeated"].test, atol=1e-4)
    assert found["weighted"].test.std() > 1  # and it learned something


@pytest.mark.parametrize("fewer", BEST_OF)
def test_trees_without_gain_end_the_training_and_are_cut_off(found: dict[str, Outcome], fewer: str) -> None:
    stopped, cut = found[BEST_OF[fewer]], found[fewer]
    best = stopped.record.best_iteration
    assert best == min(stopped.curve, key=lambda point: point[1])[0]
    # H2O stops when the last 3 of its looks, averaged, were no better: some looks later than the best.
    assert cut.curve[-1][0] == best < stopped.curve[-1][0] < 250
    np.testing.assert_array_equal(stopped.valid, cut.valid)
    np.testing.assert_array_equal(stopped.test, cut.test)


@pytest.mark.parametrize("name", ["stopped", "leaves", "sorted", "by_text", "one_hot", "fold"])
def test_h2os_own_library_reads_the_saved_model_as_the_trial_did(
    found: dict[str, Outcome], name: str
) -> None:
    """Also with texts that a CSV file hides, and letters that the machine's locale does not know."""
    trial = found[name]
    np.testing.assert_allclose(np.load(trial.folder / "java.npy"), trial.test, atol=1e-6)
    if name == "one_hot":
        np.testing.assert_allclose(predicted_by_java(trial), trial.test, atol=1e-6)
    assert trial.record.saved_model is not None and trial.record.saved_model.rows > 100


def test_categories_that_h2os_library_reads_as_missing_are_left_to_xgboost(found: dict[str, Outcome]) -> None:
    trial = found["unreadable"]
    assert trial.accuracy() == 1
    assert trial.record.saved_model is not None
    assert 0 < trial.record.saved_model.rows < len(trial.valid)
    with pytest.raises(TrialError, match=r"rows hold a category .*pip install 'sparkgpu.xgboost.'"):
        predicted_by_java(trial)


def test_one_cut_parts_levels_that_lie_between_each_other(found: dict[str, Outcome]) -> None:
    assert found["sorted"].accuracy() == 1
    assert found["by_text"].accuracy() < 0.8


@pytest.mark.parametrize("name", ["poisson", "gamma", "tweedie"])
def test_trees_of_a_distribution_predict_means_in_the_targets_unit(
    found: dict[str, Outcome], name: str
) -> None:
    """In this process, by H2O's own library, and in the learning curve."""
    trial = found[name]
    label_N, split_N = trial.planted.label_N, trial.planted.split_N
    assert trial.test.mean() == pytest.approx(label_N[split_N == "train"].mean(), rel=0.1)
    assert trial.test.max() / trial.test.min() > 100
    rmse = np.sqrt(np.mean((trial.valid - label_N[split_N == "valid"]) ** 2))
    assert dict(trial.curve)[trial.record.best_iteration] == pytest.approx(rmse, rel=1e-4)
    np.testing.assert_allclose(np.load(trial.folder / "java.npy"), trial.test, rtol=1e-5)


@pytest.mark.parametrize("name", ["leaves", "parsed_leaves", "fold", "parsed_fold"])
def test_h2o_trains_on_the_columns_of_the_table_to_the_last_bit(found: dict[str, Outcome], name: str) -> None:
    schema, folder = found[name].planted.schema, found[name].planted.paths.split("train")
    expected = pd.concat(pq.read_table(file).to_pandas() for file in sorted(folder.glob("*.parquet")))
    expected = expected.replace(np.inf, np.nan)  # an infinite number is missing to H2O
    if name in FOLD:
        expected = expected[expected["fold"] != FOLD[name]]
    frame = pd.read_csv(found[name].folder / "frame.csv", keep_default_na=False, na_values=[""])
    codes: dict[Any, Any] = {text: float(code) for code, text in enumerate(COLORS)}
    if name not in FOLD:
        order = ordered_levels(folder, schema, None)["color"]
        assert sorted(order) == list(range(len(COLORS))) != list(order)
        codes = dict(enumerate(order))
    frame["color"] = frame["color"].map(codes)
    for feature in schema.features:
        values = frame[feature.name].to_numpy(np.float32)
        np.testing.assert_array_equal(values, expected[feature.name].to_numpy())
    np.testing.assert_allclose(frame["label"], expected["label"], rtol=1e-12)  # H2O writes 15 digits


@pytest.mark.parametrize("parsed", PARSED)
def test_rows_that_h2o_reads_in_place_are_the_rows_that_it_parses(
    found: dict[str, Outcome], parsed: str
) -> None:
    """Categories as numbers and one by one, gaps, weights, folds, several files."""
    one, other = found[parsed.removeprefix("parsed_")], found[parsed]
    assert _inside(one.folder / "model.zip") == _inside(other.folder / "model.zip")
    assert one.curve == other.curve
    assert one.test.std() > 0.1


def _inside(mojo: Path) -> tuple[bytes, dict[str, bytes]]:
    """A MOJO's trees and the levels of its categories."""
    with zipfile.ZipFile(mojo) as opened:
        names = [name for name in opened.namelist() if name.startswith("domains/")]
        return opened.read("boosterBytes"), {name: opened.read(name) for name in names}
