"""Further models of a run: how they are named, refused, resolved, and laid out over the lanes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.model_keys import NeuralConfig, TreesConfig
from sparkgpu.core.config.parameters import NeuralParameters, TreesParameters
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.errors import ConfigError, DeviceError
from sparkgpu.core.host.devices import Machine, choose_devices
from sparkgpu.core.plan.make_plan import make_plan
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.runs.provenance import check_engines

SMALL = TableSize(task="binary", train_rows=5_000, num_features=10, num_classes=2)


def load(*assignments: str, also: str | None = None) -> RunConfig:
    return config_io.load(options={"also": also}, assignments=assignments)


def plan_of(config: RunConfig) -> Plan:
    machine = Machine(cores=4, memory_bytes=32 * 2**30, gpus=(), driver=None)
    devices = choose_devices(machine, gpus=None, cpu_lanes=config.devices.cpu_lanes, environ={})
    return make_plan(config, machine, devices, tuple(21000 + 8 * i for i in range(len(devices))))


def test_names_that_are_added_are_engines_or_networks() -> None:
    config = load(also="lightgbm, realmlp")
    assert config.model_names == ("trees", "neural", "lightgbm", "realmlp")
    assert [config.branch(name) for name in config.model_names] == ["trees", "neural", "trees", "neural"]
    lightgbm, realmlp = config.section("lightgbm"), config.section("realmlp")
    assert isinstance(lightgbm, TreesConfig) and lightgbm.engine == "lightgbm"
    assert isinstance(realmlp, NeuralConfig) and realmlp.architecture == "realmlp"


def test_tables_alone_are_added_and_names_are_the_whole_list(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[[models]]\nname = "shallow"\nengine = "xgboost"\nmax_depth = 3\n')
    added = config_io.load(file=file)
    assert added.model_names == ("trees", "neural", "shallow")
    assert config_io.load(file=file, options={"also": "mlp"}).model_names[2:] == ("shallow", "mlp")
    assert load('models=["trees", "lightgbm"]').model_names == ("trees", "lightgbm")
    assert load('models=["lightgbm"]').branches == {"trees"}
    table = {"name": "shallow", "engine": "xgboost", "max_depth": 3}
    for also in (table, [table, "mlp,resnet"]):  # as Python may give them
        assert config_io.load(options={"also": also}).model_names[2] == "shallow"


def test_a_model_takes_from_its_branch_what_its_table_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        "[trees]\nntrees = 50\nmax_depth = 4\n[neural]\nepochs = 3\n"
        '[[models]]\nname = "deep"\nengine = "xgboost"\nmax_depth = 9\n'
        '[[models]]\nname = "small"\narchitecture = "mlp"\nhidden = [16]\n'
    )
    config = config_io.load(file=file)
    deep, small = config.section("deep"), config.section("small")
    assert isinstance(deep, TreesConfig) and (deep.ntrees, deep.max_depth) == (50, 9)
    assert isinstance(small, NeuralConfig) and (small.epochs, small.hidden) == (3, (16,))
    assert config.trees.max_depth == 4


def test_a_resolved_contest_is_written_whole_and_repeats_itself(tmp_path: Path) -> None:
    config = load(also="lightgbm,catboost,realmlp,resnet")
    plan = plan_of(config)
    resolved = plan.resolved(config, SMALL)
    file = tmp_path / "run.toml"
    file.write_text(config_io.dump(resolved.config), encoding="utf-8")
    again = config_io.load(file=file)
    assert again == resolved.config
    second = plan_of(again).resolved(again, SMALL)
    for name in config.model_names:
        assert second.of(name) == resolved.of(name), name
    realmlp, catboost = resolved.of("realmlp"), resolved.of("catboost")
    assert isinstance(realmlp, NeuralParameters) and realmlp.members == 1  # not those of TabM
    assert isinstance(catboost, TreesParameters) and catboost.grow_policy == "symmetric"
    assert resolved.of("lightgbm") != resolved.of("catboost")


@pytest.mark.parametrize(
    ("also", "words"),
    [
        ("lightgmb", "Did you mean 'lightgbm'?"), ("trees", "'trees' is there twice"),
        ("torch", "'torch' is no model"), ("lightgbm,,mlp", "'' is no model"), (3, "models"),
        ([None], "models"), ({"name": "a"}, "models"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_are_refused_in_one_sentence(also: Any, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_io.load(options={"also": also})
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"name": "a"}, "it has neither"),
        ({"name": "a", "engine": "xgboost", "architecture": "mlp"}, "it has both"),
        *(({"name": name, "engine": "xgboost"}, "already means") for name in ("blend", "trees", "mine-s7")),
        ({"name": "A b", "engine": "xgboost"}, "small letters"),
        ({"name": "a", "engine": "xgboost", "epochs": 3}, "unknown key"),
        ({"name": "a", "architecture": "mlp", "strategy": "ddp"}, "unknown key"),
        ({"name": "a", "engine": "xgboost", "grow_policy": "symmetric"}, "grow depthwise or lossguide"),
        ({"engine": "xgboost"}, "name"),
        ({"name": "catboost", "engine": "xgboost"}, "that name would mislead"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_are_refused_in_one_sentence(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_io.check({"models": [table]}, origin="test")
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_an_engine_that_is_not_installed_is_refused_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sparkgpu.core.config.registry.engines.find_spec", lambda name: name != "catboost" or None
    )
    with pytest.raises(DeviceError, match=r"model 'catboost'.*pip install 'sparkgpu\[catboost\]'"):
        check_engines(load(also="catboost"))
    check_engines(load())
    own = {entry.name: entry for entry in ENGINES.own() if entry.branch == "trees" and not entry.needs_h2o}
    assert all(entry.module and entry.package for entry in own.values())


def test_lanes_train_different_models_at_the_same_time() -> None:
    config = load("devices.cpu_lanes=2", "repeats=1", also="lightgbm,catboost,realmlp")
    lanes = {trial.name: trial.lane for trial in plan_of(config).trials}
    assert lanes == {
        "trees-s7": 0, "lightgbm-s7": 1, "catboost-s7": 0, "neural-s7": 0, "realmlp-s7": 1,
    }  # fmt: skip
