"""What a search may change: only keys that the user left open, in ranges that hold the defaults."""

from __future__ import annotations

import tomllib

import pytest
from test_plan import plan_of

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.parameters import TreesParameters
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.config.registry.entries import Choice, Range
from sparkgpu.core.errors import ConfigError, DeviceError
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import free_keys, search_space
from sparkgpu.runs.provenance import check_engines

SIZES = [
    TableSize(task=task, train_rows=rows, num_features=columns, num_classes=classes)
    for task, classes in (("binary", 2), ("multiclass", 40), ("regression", 0))
    for rows, columns in ((500, 5), (50_000, 20), (400_000, 60), (8_000, 1_000))
]


def test_a_search_adds_a_model_beside_each_with_the_defaults() -> None:
    names = [trial.name for trial in plan_of("search=5").trials]
    assert names == ["trees-s7", "neural-s7", "trees-tuned-s7", "neural-tuned-s7"]
    tuned = {trial.model: trial for trial in plan_of("search=5").trials if trial.settings}
    assert tuned["trees-tuned"].settings == 5
    assert "learn_rate" in tuned["trees-tuned"].free and "ntrees" not in tuned["trees-tuned"].free
    assert {trial.settings for trial in plan_of().trials} == {0}


def test_what_the_user_set_is_never_changed() -> None:
    found = free_keys(config_io.load(assignments=["trees.learn_rate=0.1"]).trees)
    assert "learn_rate" not in found and "reg_lambda" in found
    every = [f"trees.{key}=1" for key in ENGINES.find("lightgbm").search]
    with pytest.raises(ConfigError, match="there is nothing to try"):
        plan_of("search=5", "trees.engine=lightgbm", 'models=["trees"]', *every)
    both = plan_of("search=5", "trees.engine=lightgbm", *every)
    assert [trial.model for trial in both.trials] == ["trees", "neural", "neural-tuned"]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_model_has_settings_to_try_around_its_defaults_and_a_written_run_tries_them_again(
    size: TableSize,
) -> None:
    also = ["xgboost", "lightgbm", "catboost", "mlp", "resnet", "realmlp"]
    config = config_io.load(options={"also": also}, assignments=["search=3"])
    resolved = plan_of("search=3").resolved(config, size)
    again = config_io.check(tomllib.loads(config_io.dump(resolved.config)), origin="run.toml")
    for name in config.model_names:
        parameters = resolved.of(name)
        free = free_keys(config.section(name))
        space = search_space(parameters, free)
        assert space and free_keys(again.section(name)) == free, name
        for key, values in space.items():
            default = getattr(parameters, key)
            if isinstance(values, Choice):
                assert default in values.values
            else:
                assert isinstance(values, Range) and values.low <= default <= values.high


def test_a_limit_that_is_none_is_not_searched() -> None:
    config = config_io.load()
    parameters = plan_of().resolved(config, SIZES[2]).trees
    assert parameters.max_depth == 0
    assert "max_depth" not in search_space(parameters, ("max_depth", "max_leaves"))
    by_depth = TreesParameters.model_validate(
        {**dict(parameters), "grow_policy": "depthwise", "max_depth": 6}
    )
    assert set(search_space(by_depth, ("max_depth", "max_leaves"))) == {"max_depth"}
    cosines = plan_of().resolved(config, SIZES[1]).neural.model_copy(update={"number_embedding": "cosine"})
    assert set(search_space(cosines, ("num_bins", "dropout"))) == {"dropout"}


def test_all_folds_of_a_search_are_on_one_lane() -> None:
    plan = plan_of("search=4", "split.folds=3", "repeats=1", "devices.cpu_lanes=2")
    for model in ("trees-tuned", "neural-tuned"):
        assert len({trial.lane for trial in plan.trials if trial.model == model}) == 1


def test_a_search_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("0", "1", "-3", "2.5", "many"):
        with pytest.raises(ConfigError, match="search"):
            config_io.load(assignments=[f"search={text}"])
    monkeypatch.setattr("sparkgpu.runs.provenance.find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"pip install 'sparkgpu\[search\]'"):
        check_engines(config_io.load(assignments=["search=3"]))
