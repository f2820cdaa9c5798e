"""What each column added to a prediction: it adds up, is right where that is known, and comes as a file."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from planted_run import planted_run
from running import REPOSITORY
from trained_run import people, prepared_run, train

import sparkgpu
from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import Rows, read_rows
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.predict.explain.contributions import Explain, exact, sampling
from sparkgpu.trials.engine import Model, load_fitted

pytestmark = pytest.mark.filterwarnings("ignore:values that training never saw")

TREES = ("xgboost", "lightgbm", "catboost")
COLUMNS = ("body mass [g]", "legs", "member", "island", "zone", "street", "since")
PLANTED = ("shared", "town", "when", "noise")
KEYS = {"trees.ntrees": 20, "neural.epochs": 2, "neural.hidden": [16], "neural.architecture": "mlp"}
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=("binary", "multiclass", "regression"))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    paths = prepared_run(tmp_path_factory.mktemp("why") / request.param, request.param)
    engines = {name: (name, {"trees.engine": name, **KEYS}) for name in TREES}
    train(paths, engines | {"leafwise": ("catboost", KEYS), "net": ("torch", KEYS)})
    people(40, 3, request.param).to_parquet(paths.root / "new.parquet", coerce_timestamps="us")
    return paths


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    return planted_run(tmp_path_factory.mktemp("planted") / "run", seeds=2)


def new_rows(run: RunPaths) -> pd.DataFrame:
    """Rows with gaps, one with a level that training never saw, and one without any value."""
    frame = pd.read_parquet(run.root / "new.parquet").drop(columns="y")
    frame.loc[3, "island"] = "Atlantis"
    frame.loc[39] = None
    return frame


def summed(found: pd.DataFrame) -> np.ndarray:
    return (found["base"] + found.filter(regex="^contribution_").sum(axis=1)).to_numpy()


@pytest.mark.parametrize("name", TREES)
def test_contributions_to_trees_add_up_to_the_margin_of_the_prediction(run: RunPaths, name: str) -> None:
    model, frame = sparkgpu.load(run.root, name), new_rows(run)
    found = model.explain(frame)
    assert [*found.filter(like="contribution_")] == [f"contribution_{column}" for column in COLUMNS]
    assert not [*found.filter(like="error_")]
    np.testing.assert_allclose(found["prediction"], summed(found), atol=1e-9)
    if model.task == "regression":
        margin, expected, scale = summed(found), model.predict(frame), "value"
    elif model.task == "binary":
        share_NC = model.predict_proba(frame)
        margin, expected, scale = summed(found), np.log(share_NC[:, 1] / share_NC[:, 0]), "log-odds"
        assert set(found["class"]) == {model.classes_[1]}
    else:  # a score has any zero, and is at the run's temperature
        margin_NC, log_NC = summed(found).reshape(-1, 3), np.log(model.predict_proba(frame))
        margin, expected = (
            (values - values.mean(axis=1, keepdims=True)).ravel() for values in (margin_NC, log_NC)
        )
        scale = "log score"
        assert found["class"].tolist() == model.classes_.tolist() * len(frame)
    assert set(found["scale"]) == {scale}
    assert found["row"].unique().tolist() == [*range(len(frame))]
    np.testing.assert_allclose(margin, expected, atol=1e-4)
    strongest = found.filter(like="contribution_").abs().mean().idxmax()
    assert strongest in ("contribution_body mass [g]", "contribution_island", "contribution_street")


@pytest.mark.parametrize("name", ["net", "blend", "leafwise"])
def test_sampled_contributions_add_up_to_the_prediction_and_have_errors(run: RunPaths, name: str) -> None:
    model, frame = sparkgpu.load(run.root, name), new_rows(run)
    if name == "blend" and len(model.members) == 1:
        assert not model.is_sampled  # all of its weight is on one model of trees
        return
    found = model.explain(frame, samples=4)
    classes = bool(model.schema.classes)
    expected = model.predict_proba(frame) if classes else model.predict(frame)
    expected = expected[:, 1] if model.task == "binary" else expected.ravel()
    np.testing.assert_allclose(summed(found), expected, atol=1e-5)
    assert set(found["scale"]) == {"probability" if classes else "value"}
    error = found.filter(like="error_")
    assert error.shape[1] == len(COLUMNS) and (error >= 0).all(axis=None) and error.to_numpy().max() > 0
    alone = model.explain(frame[7:8], samples=4)
    np.testing.assert_allclose(alone["base"], found.loc[found["row"] == 7, "base"])
    np.testing.assert_allclose(summed(alone), summed(found[found["row"] == 7]), atol=1e-5)
    assert alone["row"].unique() == [0]


def by_all_coalitions(schema: TableSchema, model: Model, rows: Rows, others: Rows) -> np.ndarray:
    """Shapley values (N, columns) against `others`, by their definition."""
    numeric = np.array([PLANTED.index(one.source) for one in schema.numeric])
    codes = np.array([PLANTED.index(one.source) for one in schema.categorical])
    every = [*itertools.product([False, True], repeat=len(PLANTED))]
    count = len(others.label_N)
    value = {}
    for own in every:
        mixed = []
        for n in range(len(rows.label_N)):
            mixed.append(others.part(np.arange(count)))
            for place in np.flatnonzero(np.array(own)[numeric]):
                mixed[-1].numeric_NF[:, place] = rows.numeric_NF[n, place]
            for place in np.flatnonzero(np.array(own)[codes]):
                mixed[-1].codes_NK[:, place] = rows.codes_NK[n, place]
        value[own] = np.array([model.predict(one)[:, 1].mean() for one in mixed])
    found = np.zeros((len(rows.label_N), len(PLANTED)))
    for own in every:
        for m in np.flatnonzero(~np.array(own)):
            grown = tuple(one or place == m for place, one in enumerate(own))
            size = sum(own)
            weight = math.factorial(size) * math.factorial(len(PLANTED) - size - 1)
            found[:, m] += weight / math.factorial(len(PLANTED)) * (value[grown] - value[own])
    return found


def test_sampled_contributions_of_a_network_are_the_exact_ones_within_their_errors(planted: RunPaths) -> None:
    schema = read_schema(planted)
    model = load_fitted("torch", planted.trial("neural-s7").root, schema)
    rows = read_rows(planted, schema, "test").part(slice(12))
    exact_NM = by_all_coalitions(schema, model, rows, read_rows(planted, schema, "valid"))
    found = sampling(planted, schema, PLANTED, model.predict, 64)(rows)
    assert found.error_NGM is not None
    error_NM, added_NM = found.error_NGM[:, 0], found.added_NGM[:, 0]
    assert (np.abs(added_NM - exact_NM) <= 3 * error_NM + 0.01).all()
    assert np.sqrt(np.mean(np.square(added_NM - exact_NM))) < 1.2 * np.sqrt(np.mean(np.square(error_NM)))
    few = sampling(planted, schema, PLANTED, model.predict, 16)(rows)
    assert few.error_NGM is not None
    assert 1.5 < few.error_NGM.mean() / found.error_NGM.mean() < 2.7  # four times the rows halve it
    assert np.abs(added_NM[:, PLANTED.index("noise")]).max() < 0.1 < np.abs(added_NM).max()


def linear(run: RunPaths, samples: int) -> tuple[Explain, Rows, np.ndarray]:
    """What explains a linear function of `shared`, two parts of `when`, and a town; and its exact values."""
    schema = read_schema(run)

    def predict(rows: Rows) -> np.ndarray:
        shared, _, day, hour, _ = rows.numeric_NF.astype(np.float64).T
        share = (2 * shared + day - 3 * hour + 5 * (rows.codes_NK[:, 0] == 1)) / 100
        return np.column_stack([1 - share, share])

    rows, valid = read_rows(run, schema, "test"), read_rows(run, schema, "valid")
    parts = [
        np.column_stack([2 * a[:, 0], 5 * (b[:, 0] == 1), a[:, 2] - 3 * a[:, 3], 0 * a[:, 0]]) / 100
        for a, b in ((one.numeric_NF, one.codes_NK) for one in (rows, valid))
    ]
    explain = sampling(run, schema, PLANTED, predict, samples)
    return explain, rows, parts[0] - parts[1].mean(axis=0)


def test_parts_of_a_date_add_up_to_their_column_and_a_column_without_a_part_in_it_gets_zero(
    planted: RunPaths,
) -> None:
    explain, rows, exact_NM = linear(planted, 64)
    found = explain(rows)
    assert found.error_NGM is not None
    assert np.abs(found.added_NGM[:, 0, 3]).max() < 1e-12 and found.error_NGM[:, 0, 3].max() < 1e-7
    assert (np.abs(found.added_NGM[:, 0] - exact_NM) <= 4 * found.error_NGM[:, 0] + 1e-9).all()


def test_several_trials_have_the_mean_of_their_margins(planted: RunPaths) -> None:
    schema = read_schema(planted)
    rows = read_rows(planted, schema, "test")
    members = [
        (0.5, temperature, load_fitted("xgboost", planted.trial(f"trees-s{seed}").root, schema))
        for seed, temperature in ((7, None), (8, 2.0))
    ]
    whole = exact(schema, PLANTED, members, rows)
    each = [exact(schema, PLANTED, [(1.0, *one)], rows) for _, *one in members]
    assert whole.scale == "log-odds"
    np.testing.assert_allclose(whole.added_NGM, (each[0].added_NGM + each[1].added_NGM) / 2, atol=1e-12)


def test_the_command_writes_a_file_and_a_picture(run: RunPaths, call: Call, tmp_path: Path) -> None:
    source, csv = run.root / "new.parquet", tmp_path / "why.csv"
    code, said, wrong = call(
        "explain", run.root, source, "--out", csv, "--model", "lightgbm", "--rows", "5",
        "--picture", tmp_path / "row.png",
    )  # fmt: skip
    assert code == 0, wrong
    model = sparkgpu.load(run.root, "lightgbm")
    expected = model.explain(pd.read_parquet(source)[:5])
    pd.testing.assert_frame_equal(pd.read_csv(csv), expected, check_dtype=False)
    assert "these are the first 5 rows; --rows explains more, --row one" in said
    assert f"scale     {expected['scale'][0]}" in said and (tmp_path / "row.png").stat().st_size > 5_000
    code, said, wrong = call(
        "explain", run.root, source, "--out", "one.parquet", "--model", "net", "--row", 39, "--json",
        "--picture", "one.png",
    )  # fmt: skip
    assert code == 0, wrong
    facts = json.loads(said)
    assert (facts["model"], facts["rows"]) == ("net", 1) and not any("first" in one for one in facts["notes"])
    one = pd.read_parquet(tmp_path / "one.parquet")
    again = sparkgpu.load(run.root, "net").explain(pd.read_parquet(source)[39:])
    pd.testing.assert_frame_equal(one.drop(columns="row"), again.drop(columns="row"))
    assert set(one["row"]) == {39}


def test_what_cannot_be_explained_is_refused_in_one_line(run: RunPaths, call: Call, tmp_path: Path) -> None:
    source, out = run.root / "new.parquet", tmp_path / "why.parquet"
    (tmp_path / "there.parquet").touch()
    for options, code, words in (
        (("--out", "there.parquet"), 2, "--out there.parquet: it exists. Give a new file, or remove it."),
        (("--out", out, "--model", "nett"), 2, "model 'nett': it is not in this run. Did you mean 'net'?"),
        (("--out", out, "--picture", "a.svg"), 2, "--picture a.svg: its ending must be .png"),
        (("--out", out, "--rows", "0"), 2, "'--rows': Input should be greater than or equal to 1."),
        (("--out", out, "--row", "40"), 4, "it has no row 40, only 40 rows, which count from 0."),
    ):
        found, said, wrong = call("explain", run.root, source, *options)
        assert found == code and words in wrong and (said, wrong.count("\n")) == ("", 1), wrong
    assert not out.exists() and not list(tmp_path.glob(".*"))
    model = sparkgpu.load(run.root, "net")
    with pytest.raises(ConfigError, match="samples = 1: at least 2 are needed to tell an error"):
        model.explain(pd.read_parquet(source), samples=1)
    with pytest.raises(DataError, match="the data has no rows, so nothing can be explained"):
        model.explain(pd.read_parquet(source)[:0])
    with pytest.raises(DataError, match="the model needs column 'legs', which it does not have"):
        model.explain(pa.table(pd.read_parquet(source).drop(columns="legs")))


def test_the_lines_of_the_page_work(run: RunPaths, call: Call, tmp_path: Path) -> None:
    section = (REPOSITORY / "docs" / "explain.md").read_text(encoding="utf-8")
    (command,), (lines,) = (re.findall(rf"```{kind}\n(.*?)```", section, re.S) for kind in ("bash", "python"))
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "adult").symlink_to(run.root)
    (tmp_path / "new.parquet").symlink_to(run.root / "new.parquet")
    code, _, wrong = call(*shlex.split(command)[1:])
    assert code == 0, wrong
    assert {*pd.read_parquet("why.parquet")["row"]} == {3} and Path("row3.png").exists()
    frame = pd.read_parquet("new.parquet")
    seen = {"sparkgpu": sparkgpu, "frame": frame}
    exec(lines, seen)
    assert isinstance(seen["found"], pd.DataFrame) and {*seen["found"]["row"]} == {*range(len(frame))}


def test_a_network_without_the_rows_of_its_run_cannot_be_explained(run: RunPaths, tmp_path: Path) -> None:
    import shutil

    copied = shutil.copytree(run.root, tmp_path / "run", ignore=shutil.ignore_patterns("split=*"))
    frame = new_rows(run)
    assert len(sparkgpu.load(copied, "xgboost").explain(frame))
    with pytest.raises(ConfigError, match=r"it lacks the rows of the run \(valid\), which this model is"):
        sparkgpu.load(copied, "net").explain(frame)
