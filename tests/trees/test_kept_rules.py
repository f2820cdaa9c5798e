"""Trees keep the rules of a run: directions, and the columns that may meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planted_trees import bound, interaction, planned, steps_in_the_wrong_direction, waves

from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.trials.engine import Platform, make_engine

GROWN: dict[str, Any] = {"ntrees": 60, "max_depth": 5, "learn_rate": 0.3, "sample_rate": 0.8}
SHAPES = {"two classes": 0, "numbers": 1}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_prediction_goes_against_the_direction_of_a_feature(
    engine: str, shape: str, tmp_path: Path
) -> None:
    free = waves(tmp_path / "free", numbers=bool(SHAPES[shape]))
    ruled = bound(waves(tmp_path / "ruled", numbers=bool(SHAPES[shape])), monotone={"up": 1, "down": -1})
    settings = GROWN | ({"grow_policy": "symmetric"} if engine == "catboost" else {})
    wrong = {}
    for name, planted in (("free", free), ("ruled", ruled)):
        trial = planned(planted, "trees", engine, **settings)
        make_engine(engine, Platform()).run(trial)
        model = ENGINES.find(engine).loaded().load(trial.paths.root, planted.schema)
        wrong[name] = steps_in_the_wrong_direction(planted, model.predict)
    assert wrong["free"]["up"] > 1000 and wrong["free"]["down"] > 1000, wrong
    assert wrong["ruled"]["up"] == wrong["ruled"]["down"] == 0 < wrong["ruled"]["free"], wrong


def test_columns_of_different_groups_never_meet(exact_engine: str, tmp_path: Path) -> None:
    groups = (("up", "free"), ("down", "color"))
    ruled = bound(waves(tmp_path, numbers=True), interactions=groups)
    trial = planned(ruled, "trees", exact_engine, **GROWN)
    make_engine(exact_engine, Platform()).run(trial)
    model = ENGINES.find(exact_engine).loaded().load(trial.paths.root, ruled.schema)
    assert interaction(model.predict, 0, 1) < 1e-5 and interaction(model.predict, 1, 2) < 1e-5
    assert interaction(model.predict, 0, 2) > 1e-2
