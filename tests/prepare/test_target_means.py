"""Columns with very many levels get the mean target of each level, and no row sees its own label there."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from sparkgpu.prepare.target_means import load_means

ROWS = 600
RANDOM = np.random.default_rng(3)
USERS = np.array([f"u{user}" for user in RANDOM.integers(0, 40, ROWS)])
VALUES = RANDOM.normal(size=ROWS) + np.array([int(user[1:]) for user in USERS]) / 10
NUMBERS = RANDOM.normal(size=ROWS).tolist()
CAPPED = {"data.max_categories": 5, "split.test": 0.2, "split.valid": 0.2}


def frame(label, user=USERS) -> dict[str, list]:
    return {"user": list(user), "x": NUMBERS, "y": list(label)}


def smoothed(rows: pd.DataFrame, train: pd.DataFrame, prior_rows: float | None = None) -> pd.Series:
    """The mean of each user over `rows`, with the overall mean of the training rows."""
    prior_rows = prior_rows or credibility(train)
    sums = (rows.label * rows.weight).groupby(rows.whole).sum() + prior_rows * np.average(
        train.label, weights=train.weight
    )
    return sums / (rows.weight.groupby(rows.whole).sum() + prior_rows)


def credibility(train: pd.DataFrame) -> float:
    """The variance within users by that between them, as a one-way analysis of variance estimates them."""
    users = train.groupby("whole").label
    rows, count = len(train), users.count()
    within = ((train.label - users.transform("mean")) ** 2).sum() / (rows - len(count))
    spread = (count * (users.mean() - train.label.mean()) ** 2).sum()
    between = (spread - (len(count) - 1) * within) / (rows - (count**2).sum() / rows)
    return max(within / between, 0.1)


def table_of(found) -> pd.DataFrame:
    """The prepared rows with their user before rare ones were merged, and their part."""
    table = found.table()
    return table.assign(whole=USERS[table["row_id"]], **({} if "weight" in table else {"weight": 1.0}))


def test_other_rows_get_the_smoothed_mean_of_the_training_rows(prepare) -> None:
    found = prepare(frame(VALUES), "y", CAPPED)
    assert found.kinds["user (mean target)"] == "numeric"
    *_, of_cap, of_means = found.schema.notes
    assert of_means == "user: the mean target of each level, all counted, is a feature as well"
    table = table_of(found)
    train, test = table[table.split == "train"], table[table.split != "train"]
    lost = (train.user == "(other)").mean()
    assert of_cap == (
        "user: 40 levels; all but the 5 most frequent became one, "
        f"in {100 * lost:.1f} % of the training rows (data.max_categories)"
    )
    expected = smoothed(train, train)
    np.testing.assert_allclose(test.user_mean_target, test.whole.map(expected), rtol=1e-6)
    assert (table.user == "(other)").sum() > ROWS / 2


def test_a_training_row_does_not_see_its_own_label(prepare) -> None:
    table = table_of(prepare(frame(VALUES), "y", CAPPED))
    row = table[table.split == "train"].iloc[7]
    changed = VALUES.copy()
    changed[row.row_id] += 1
    again = table_of(prepare(frame(changed), "y", CAPPED))
    assert (again.split == table.split).all()
    is_mate = (table.whole == row.whole) & (table.row_id != row.row_id)
    # The overall mean and its weight, which stand beside every level, move a little; the level's own sum not.
    own_rows = (is_mate & (table.split == "train")).sum()
    own = again.user_mean_target[again.row_id == row.row_id].item() - row.user_mean_target
    assert abs(own) < 0.01
    of_test = (again.user_mean_target - table.user_mean_target)[is_mate & (table.split == "test")]
    assert (of_test > 0.8 / (own_rows + 1 + credibility(table[table.split == "train"]))).all()


def test_under_a_random_label_the_means_tell_nothing_of_it(prepare) -> None:
    """Ids with a few rows each beside a random label: trees that read the means have no gain from it."""
    import xgboost
    from sklearn.metrics import roc_auc_score

    drawn, rows = np.random.default_rng(5), 12_000
    columns = {"user": [f"u{user}" for user in drawn.integers(0, 4_000, rows)], "x": drawn.normal(size=rows)}
    found = prepare({**columns, "y": drawn.random(rows) < 0.3}, "y")
    stored = found.stored()
    train, valid, test = (stored[stored.split == name] for name in ("train", "valid", "test"))
    inputs = ["user", "x", "user_mean_target"]
    model = xgboost.XGBClassifier(n_estimators=300, early_stopping_rounds=20, eval_metric="logloss", n_jobs=1)
    model.fit(train[inputs], train.label, eval_set=[(valid[inputs], valid.label)], verbose=False)
    assert model.best_iteration < 20
    for split in (valid, test):
        of_chance = np.sqrt(1 / (12 * 0.3 * 0.7 * len(split)))  # the standard error of an AUC of .5
        share = model.predict_proba(split[inputs])[:, 1]
        assert abs(roc_auc_score(split.label, share) - 0.5) < 3 * of_chance
    assert train.user_mean_target.corr(train.label) < 0.02  # .5 if a row's own label were in it


def test_with_folds_a_row_gets_the_mean_of_the_other_folds(prepare) -> None:
    options = {"data.max_categories": 5, "split.folds": 3}
    table = table_of(prepare(frame(VALUES), "y", options))
    train = table[table.split == "train"]
    for fold in range(3):
        own = train[train.fold == fold]
        expected = smoothed(train[train.fold != fold], train)
        np.testing.assert_allclose(own.user_mean_target, own.whole.map(expected), rtol=1e-6)


def test_in_a_split_by_time_a_training_row_gets_the_mean_of_earlier_rows_alone(prepare) -> None:
    columns = {**frame(VALUES), "at": pd.date_range("2024-01-01", periods=ROWS, freq="h")}
    options = {**CAPPED, "split.kind": "time", "split.column": "at"}
    table = table_of(prepare(columns, "y", options))
    train = table[table.split == "train"]
    tenth_N = np.arange(len(train)) * 10 // len(train)
    assert len(train) == 360
    for tenth in range(10):
        own = train[tenth_N == tenth]
        expected = own.whole.map(smoothed(train[tenth_N < tenth], train)).fillna(train.label.mean())
        np.testing.assert_allclose(own.user_mean_target, expected, rtol=1e-5)
    test = table[table.split == "test"]
    np.testing.assert_allclose(test.user_mean_target, test.whole.map(smoothed(train, train)), rtol=1e-6)


def test_rows_of_a_group_do_not_see_each_others_labels(prepare) -> None:
    """Test rows are of other groups, so a level of one group has the overall mean there, as in training."""
    options = {**CAPPED, "split.kind": "group", "split.column": "team"}
    table = table_of(prepare({**frame(VALUES), "team": [f"t {user}" for user in USERS]}, "y", options))
    np.testing.assert_allclose(table.user_mean_target, table.label[table.split == "train"].mean(), rtol=1e-5)


def test_rows_count_by_their_weights(prepare) -> None:
    weight_N = RANDOM.integers(0, 3, ROWS)
    once, scaled = (
        table_of(prepare({**frame(VALUES), "w": by * weight_N}, "y", {**CAPPED, "data.weight": "w"}))
        for by in (1, 7)
    )
    np.testing.assert_allclose(scaled.user_mean_target, once.user_mean_target, rtol=1e-5)
    train, test = once[once.split == "train"], once[once.split != "train"]
    prior = np.average(train.label, weights=train.weight)
    sums = (train.label * train.weight).groupby(train.whole).sum()
    weights = train.weight.groupby(train.whole).sum()
    mean = test.groupby("whole").user_mean_target.first()
    beside = ((sums - mean * weights) / (mean - prior)).dropna()
    assert len(beside) > 30 and beside.std() < 0.01 * beside.mean()  # one weight of the overall mean for all


def test_several_classes_get_a_share_each(prepare) -> None:
    classes = np.array(["a", "b", "c"])[np.digitize(VALUES, [1, 3])]
    found = prepare(frame(classes), "y", CAPPED)
    shares = found.table()[["user_share_of_a", "user_share_of_b", "user_share_of_c"]]
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    assert shares.std().min() > 0.01


def test_where_a_single_level_has_rows_with_weight_the_means_are_finite(prepare) -> None:
    table = prepare(
        {**frame(VALUES), "w": (USERS == "u1") * 1.0}, "y", {**CAPPED, "data.weight": "w"}
    ).table()
    assert np.isfinite(table.user_mean_target).all()


def test_means_in_a_file_of_an_earlier_run_stand_beside_ten_rows(prepare) -> None:
    found = prepare(frame(VALUES), "y", CAPPED)
    (file,) = (found.paths.table / "target_means").iterdir()
    pq.write_table(pq.read_table(file).drop_columns(["weight", "squares"]), file)
    means = load_means(found.paths.table, found.schema.features)["user"]
    levels, by_name = means.by_level()
    table = table_of(found)
    train = table[table.split == "train"]
    expected = smoothed(train, train, 10.0)
    np.testing.assert_allclose(by_name["user_mean_target"][:-1], expected[levels], rtol=1e-6)


def test_columns_with_more_than_200_levels_in_training_get_means_unless_nobody_wants_them(prepare) -> None:
    for levels, means in ((200, True), (280, True), (280, False)):
        user = [f"u{row % levels}" for row in range(ROWS)]
        options = {"split.test": 0.1, "split.valid": 0.1, "data.target_means": means}
        has_means = "user (mean target)" in prepare(frame(VALUES, user), "y", options).kinds
        assert has_means == (levels > 200 and means)
