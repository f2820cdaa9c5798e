"""Rules of a run: who keeps them, which columns they can bind, and what is left of a withheld column."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from ways import WAYS

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.table.rows import read_rows

ROWS = 200
RANDOM = np.random.default_rng(0)
COLUMNS: dict[str, Any] = {
    "age": RANDOM.integers(18, 80, ROWS),
    "shop": RANDOM.choice(["north", "south"], ROWS),
    "paid": RANDOM.normal(size=ROWS),
    "when": [datetime.date(2024, 1, 1 + day % 28) for day in range(ROWS)],
    "sex": RANDOM.choice(["f", "m"], ROWS),
    "y": RANDOM.choice(["no", "yes"], ROWS),
}
UP = {"rules": {"monotone": {"age": "increasing"}}}


def config(values: dict[str, Any], **options: Any) -> Any:
    return config_io.load(options={**values, **options})


def test_a_run_with_rules_trains_the_models_that_keep_them() -> None:
    assert config(UP).model_names == ("trees",)
    assert config(UP, also="lightgbm,xgboost").model_names == ("trees", "lightgbm", "xgboost")
    assert config({"rules": {"without": ["sex"]}}).model_names == ("trees", "neural")
    ruled = config(UP, **{"trees.engine": "catboost"})
    assert (ruled.trees.grow_policy, ruled.trees.tree_method) == ("symmetric", "hist")
    assert config_io.check(config_io.tomllib.loads(config_io.dump(ruled)), origin="again") == ruled
    assert config({}, **{"rules.monotone.age": "increasing"}).rules == config(UP).rules


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"also": "realmlp"},
            "rules.monotone: model 'realmlp' (torch) cannot keep such rules. Leave it",
        ),
        (
            {"models": ["neural"]},
            "rules.monotone: model 'neural' (torch) cannot keep such rules. Leave it",
        ),
        ({"trees.tree_method": "approx"}, 'trees.tree_method = "approx": trees of h2o-xgboost keep it only'),
        (
            {"trees.engine": "catboost", "trees.grow_policy": "lossguide"},
            'trees.grow_policy = "lossguide": trees of catboost keep it only with symmetric. Choose',
        ),
        (
            {"trees.engine": "catboost", "rules.interactions": [["age", "shop"]]},
            "rules.interactions: model 'trees' (catboost) cannot keep such rules. Leave it out; trees of "
            "h2o-xgboost or xgboost or lightgbm can.",
        ),
        ({"rules.monotone.age": "up"}, 'rules.monotone.age = "up" does not fit'),
    ],
)
def test_a_model_that_cannot_keep_a_rule_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config({"rules.monotone.age": "increasing"}, **options)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"monotone": {"agee": "increasing"}}, "rules.monotone 'agee': no such column. Did you mean 'age'?"),
        ({"without": ["Sex"]}, "rules.without 'Sex': no such column. Did you mean 'sex'?"),
        ({"without": ["y"]}, "rules.without 'y': it is the target. Leave it out of rules.without."),
        (
            {"monotone": {"shop": "increasing"}},
            "rules.monotone: 'shop' is a category, which has no",
        ),
        (
            {"monotone": {"when": "decreasing"}},
            "rules.monotone: 'when' is a timestamp, which has no",
        ),
        (
            {"monotone": {"sex": "increasing"}, "without": ["sex"]},
            "rules: 'sex' is no feature (withheld by rules.without: it is in the table for checks alone).",
        ),
        ({"interactions": [["y", "age"]]}, "rules: 'y' is no feature (it is the target, the weight or the"),
        ({"interactions": [["age"], ["age", "shop"]]}, "rules.interactions: 'age' is in two groups."),
        ({"without": ["age", "shop", "paid", "when", "sex"]}, "no usable features: age (withheld by"),
    ],
)
def test_a_rule_that_binds_no_feature_is_refused(
    prepare: Any, refused: Any, rules: dict[str, Any], words: str
) -> None:
    assert words in refused(prepare, COLUMNS, "y", {"rules": rules})


def test_several_classes_have_no_direction(prepare: Any, refused: Any) -> None:
    three = {**COLUMNS, "y": np.array(list("abc"))[np.arange(ROWS) % 3]}
    assert "has 3 classes, and only a number" in refused(prepare, three, "y", UP)


@pytest.mark.parametrize("by", WAYS)
def test_a_withheld_column_is_in_the_table_and_no_feature(prepare: Any, by: str) -> None:
    rules = {
        "without": ["sex", "age"],
        "monotone": {"paid": "decreasing"},
        "interactions": [["paid", "shop"]],
    }
    found = prepare(COLUMNS, "y", {"rules": rules}, by=by)
    schema = found.schema
    assert {one.source for one in schema.features} == {"shop", "paid", "when"}
    assert [one.source for one in schema.beside] == ["age", "sex"]
    assert {"age", "sex"} <= found.dropped.keys()
    stored = found.stored()
    assert stored["age"].tolist() == COLUMNS["age"].tolist()
    levels = dict(enumerate(schema.beside[1].levels))
    assert stored["sex"].map(levels).tolist() == COLUMNS["sex"].tolist()
    assert schema.monotone == {"paid": -1} and schema.signs[1] == -1
    rest = {one.name for one in schema.features} - {"paid", "shop"}
    assert [set(group) for group in schema.interactions] == [{"paid", "shop"}, rest]
    assert read_rows(found.paths, schema, "train").numeric_NF.shape[1] == len(schema.numeric)
