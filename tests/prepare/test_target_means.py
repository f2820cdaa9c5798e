"""Columns with very many levels get the mean target of each level, and no row sees its own label there."""

from __future__ import annotations

import numpy as np
import pandas as pd

ROWS = 600
PRIOR = 10
RANDOM = np.random.default_rng(3)
USERS = np.array([f"u{user}" for user in RANDOM.integers(0, 40, ROWS)])
VALUES = RANDOM.normal(size=ROWS) + np.array([int(user[1:]) for user in USERS]) / 10
NUMBERS = RANDOM.normal(size=ROWS).tolist()
CAPPED = {"data.max_categories": 5, "split.test": 0.2, "split.valid": 0.2}


def frame(label, user=USERS) -> dict[str, list]:
    return {"user": list(user), "x": NUMBERS, "y": list(label)}


def smoothed(rows: pd.DataFrame, label_N: np.ndarray, prior: float) -> dict[str, float]:
    """The mean of each user over `rows`; users with a single training row are not in `rows`."""
    found = pd.DataFrame({"user": rows["whole"], "label": label_N}).groupby("user")["label"]
    return ((found.sum() + PRIOR * prior) / (found.count() + PRIOR)).to_dict()


def table_of(found) -> pd.DataFrame:
    """The prepared rows with their user before rare ones were merged, and their part."""
    table = found.table()
    return table.assign(whole=USERS[table["row_id"]])


def test_other_rows_get_the_smoothed_mean_of_the_training_rows(prepare) -> None:
    found = prepare(frame(VALUES), "y", CAPPED)
    assert found.kinds["user (mean target)"] == "numeric"
    assert found.schema.notes[-1] == "user: the mean target of each level is a feature as well"
    table = table_of(found)
    train, test = table[table.split == "train"], table[table.split != "train"]
    expected = smoothed(train, train.label, train.label.mean())
    np.testing.assert_allclose(test.user_mean_target, test.whole.map(expected), rtol=1e-6)
    assert (table.user == "(other)").sum() > ROWS / 2


def test_a_training_row_does_not_see_its_own_label(prepare) -> None:
    table = table_of(prepare(frame(VALUES), "y", CAPPED))
    row = table[table.split == "train"].iloc[7]
    changed = VALUES.copy()
    changed[row.row_id] += 1000
    again = table_of(prepare(frame(changed), "y", CAPPED))
    assert (again.split == table.split).all()
    is_mate = (table.whole == row.whole) & (table.row_id != row.row_id)
    # The overall mean, which stands beside every level, moves a little; the level's own sum does not.
    own_rows = (is_mate & (table.split == "train")).sum()
    most = PRIOR * 1000 / (table.split == "train").sum() / (PRIOR + 1)
    own = again.user_mean_target[again.row_id == row.row_id].item() - row.user_mean_target
    assert 0 < own < most
    of_test = (again.user_mean_target - table.user_mean_target)[is_mate & (table.split == "test")]
    assert (of_test > 1000 / (own_rows + 1 + PRIOR)).all()


def test_under_a_random_label_the_means_tell_nothing_of_it(prepare) -> None:
    label = np.random.default_rng(5).normal(size=ROWS)
    table = table_of(prepare(frame(label, [f"u{row % 210}" for row in range(ROWS)]), "y"))
    by_split = {name: rows.user_mean_target.corr(rows.label) for name, rows in table.groupby("split")}
    assert by_split["train"] < 0.05  # a mean that holds the row's own label gives .5 here
    assert abs(by_split["test"]) < 0.2


def test_with_folds_a_row_gets_the_mean_of_the_other_folds(prepare) -> None:
    options = {"data.max_categories": 5, "split.folds": 3}
    table = table_of(prepare(frame(VALUES), "y", options))
    train = table[table.split == "train"]
    for fold in range(3):
        others, own = train[train.fold != fold], train[train.fold == fold]
        expected = smoothed(others, others.label, train.label.mean())
        np.testing.assert_allclose(own.user_mean_target, own.whole.map(expected), rtol=1e-6)


def test_several_classes_get_a_share_each(prepare) -> None:
    classes = np.array(["a", "b", "c"])[RANDOM.integers(0, 3, ROWS)]
    found = prepare(frame(classes), "y", CAPPED)
    shares = found.table()[["user_share_of_a", "user_share_of_b", "user_share_of_c"]]
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    assert shares.std().min() > 0.01


def test_a_level_that_training_hardly_shows_gets_the_overall_mean(prepare) -> None:
    users = np.where(np.arange(ROWS) % 10 == 0, [f"once {row}" for row in range(ROWS)], USERS)
    found = prepare(frame(VALUES, users), "y", CAPPED)
    table = found.table()
    once = table[table.row_id % 10 == 0].user_mean_target
    np.testing.assert_allclose(once, table.label[table.split == "train"].mean(), rtol=1e-6)


def test_columns_with_more_than_200_levels_in_training_get_means_unless_nobody_wants_them(prepare) -> None:
    for levels, means in ((200, True), (280, True), (280, False)):
        user = [f"u{row % levels}" for row in range(ROWS)]
        options = {"split.test": 0.1, "split.valid": 0.1, "data.target_means": means}
        has_means = "user (mean target)" in prepare(frame(VALUES, user), "y", options).kinds
        assert has_means == (levels > 200 and means)
