"""Writes made-up tables of shapes on which tabular models tend to fail, with the score that can be expected.

    python benchmarks/shapes.py FOLDER [--tables classes ids wide words]

`classes.parquet`: 40,000 rows, 10 numbers, 200 classes, a Gaussian each. `ids.parquet`: 500,000 rows with
the ids of 200,000 users and 50,000 items, whose effects on the target add up. `wide.parquet`: 10,000 rows of
2,000 numbers, of which 12 count. `words.parquet`: 33,000 rows of nine columns of words, with up to 7,500
levels, some of which follow from others. The target's column is always `target`. For each table it prints
what a plain model reaches on a random 15 % of the rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.metrics import accuracy_score, roc_auc_score

_SEED = 7
_PRIOR_ROWS = 10.0


def classes() -> pd.DataFrame:
    """200 Gaussians in 10 dimensions, each with its own mean and width."""
    random = np.random.default_rng(_SEED)
    label_N = random.integers(200, size=40_000)
    mean_CF = random.normal(size=(200, 10))
    width_CF = random.uniform(0.5, 0.9, size=(200, 10))
    values_NF = mean_CF[label_N] + width_CF[label_N] * random.normal(size=(40_000, 10))
    return _table(values_NF, np.char.add("class ", label_N.astype(str)))


def ids() -> pd.DataFrame:
    """Users and items, a few of them in many rows; the target's log-odds are the sum of their effects."""
    random = np.random.default_rng(_SEED)
    user_N, item_N = _skewed(random, 200_000, 500_000), _skewed(random, 50_000, 500_000)
    user_effect, item_effect = random.normal(0, 2.0, 200_000), random.normal(0, 1.0, 50_000)
    odds_N = user_effect[user_N] + item_effect[item_N]
    return pd.DataFrame(
        {
            "user": np.char.add("u", user_N.astype(str)),
            "item": np.char.add("i", item_N.astype(str)),
            "hour": random.integers(24, size=500_000),
            "target": _drawn(random, odds_N),
        }
    )


def wide() -> pd.DataFrame:
    """Numbers of which 8 count alone and 4 in pairs."""
    random = np.random.default_rng(_SEED)
    values_NF = random.normal(size=(10_000, 2_000)).astype(np.float32)
    odds_N = 2.4 * values_NF[:, :8] @ random.choice([-1.0, 1.0], 8)
    odds_N += 1.5 * sum(values_NF[:, place] * values_NF[:, place + 1] for place in (8, 10))
    return _table(values_NF, _drawn(random, odds_N))


def words() -> pd.DataFrame:
    """Requests for resources by staff of departments: effects of words, and of departments with resources."""
    random, rows = np.random.default_rng(3), 33_000
    dept_N, title_N = _skewed(random, 450, rows), _skewed(random, 340, rows)
    manager_N = (dept_N * 9 + _skewed(random, 40, rows)) % 4_200
    own_DP = random.integers(7_500, size=(450, 60))
    own_N = own_DP[dept_N, _skewed(random, 60, rows)]
    resource_N = np.where(random.random(rows) < 0.6, own_N, _skewed(random, 7_500, rows))
    odds_N = 4.4 + random.normal(0, 1.4, 7_500)[resource_N] + random.normal(0, 1.2, 4_200)[manager_N]
    odds_N += random.normal(0, 0.6, 340)[title_N]
    odds_N += random.normal(0, 1.2, 1 << 22)[(dept_N * 7_919 + resource_N * 31) % (1 << 22)]
    codes = {
        "resource": resource_N, "manager": manager_N, "unit": dept_N % 130, "group": dept_N * 7 % 180,
        "dept": dept_N, "title": title_N, "role": (dept_N * 3 + title_N) % 2_300, "family": title_N % 66,
        "code": title_N,
    }  # fmt: skip
    frame = pd.DataFrame({name: np.char.add("w", code_N.astype(str)) for name, code_N in codes.items()})
    return frame.assign(target=_drawn(random, odds_N))


def _skewed(random: np.random.Generator, number: int, rows: int) -> NDArray[np.int64]:
    """`rows` draws of `number` ids; a tenth of the ids gets about half of the rows."""
    weight = 1 / (np.arange(number) + number / 100)
    return random.permutation(number)[random.choice(number, size=rows, p=weight / weight.sum())]


def _drawn(random: np.random.Generator, odds_N: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(random.random(len(odds_N)) < 1 / (1 + np.exp(-odds_N)))


def _table(values_NF: NDArray[Any], label_N: NDArray[Any]) -> pd.DataFrame:
    frame = pd.DataFrame(values_NF.astype(np.float32), columns=[f"x{i}" for i in range(values_NF.shape[1])])
    return frame.assign(target=label_N)


def _split(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    is_test = np.random.default_rng(_SEED).random(len(frame)) < 0.15
    return frame[~is_test], frame[is_test]


def _means(train: pd.DataFrame, test: pd.DataFrame, column: str) -> pd.Series[float]:
    """The smoothed log-odds of the target for each id, from the training rows."""
    base = train["target"].mean()
    found = train.groupby(column)["target"].agg(["sum", "count"])
    mean = (found["sum"] + _PRIOR_ROWS * base) / (found["count"] + _PRIOR_ROWS)
    share = test[column].map(mean).fillna(base)
    return np.log(share / (1 - share))


def expected(name: str, frame: pd.DataFrame) -> str:
    """The score of a plain model, in words."""
    train, test = _split(frame)
    if name in ("ids", "words"):
        columns = ("user", "item") if name == "ids" else ("resource", "manager", "title")
        score = roc_auc_score(test.target, sum(_means(train, test, column) for column in columns))
        return f"smoothed means of the target by {', '.join(columns)}: ROC AUC {score:.3f}"
    x_train, x_test = train.drop(columns="target"), test.drop(columns="target")
    if name == "classes":
        model = QuadraticDiscriminantAnalysis(reg_param=0.1).fit(x_train, train.target)
        return f"quadratic discriminant: accuracy {accuracy_score(test.target, model.predict(x_test)):.3f}"
    boosted = lightgbm.LGBMClassifier(verbose=-1).fit(x_train, train.target)
    share = np.asarray(boosted.predict_proba(x_test))[:, 1]
    return f"LightGBM, defaults: ROC AUC {roc_auc_score(test.target, share):.3f}"


TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "classes": classes, "ids": ids, "wide": wide, "words": words,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.tables:
        frame = TABLES[name]()
        frame.to_parquet(options.folder / f"{name}.parquet", index=False)
        print(
            f"{name}: {len(frame):,} rows, {frame.shape[1] - 1:,} columns; {expected(name, frame)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
