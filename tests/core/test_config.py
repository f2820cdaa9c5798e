"""A configuration is one immutable object, is written back exactly, and is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.errors import ConfigError

EVERY_KIND_OF_VALUE = {
    "seed": 11,
    "repeats": 3,
    "preset": "best",
    "data": {
        "source": "a b/ü.csv",
        "target": 'the "target"\\ of\tit',
        "task": "binary",
        "ignore": ["a.b", "c d"],
        "weight": "w",
        "roles": {"zip.code": "categorical", "größe": "numeric"},
        "max_categories": 50,
    },
    "split": {"kind": "group", "column": "house", "test": 0.2, "valid": 0.1, "folds": 4},
    "devices": {"gpus": ["0", "GPU-4f"]},
    "trees": {"ntrees": 20, "learn_rate": 1e-5, "min_rows": 5e-6, "early_stopping_rounds": 0},
    "neural": {"hidden": [64, 32], "dropout": 0.0, "patience": 0, "precision": "bfloat16"},
}


def refusal(**arguments: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config_io.load(**arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_what_was_dumped_loads_as_an_equal_object_that_cannot_be_changed(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    for values in ({}, EVERY_KIND_OF_VALUE):
        written = config_io.check(values, origin="test")
        file.write_text(config_io.dump(written), encoding="utf-8")
        assert config_io.load(file=file) == written
    assert written.data.roles == {"zip.code": "categorical", "größe": "numeric"}
    assert (written.neural.hidden, written.trees.min_rows) == ((64, 32), 5e-6)
    assert not {"ntrees", "folds"} & set(config_io.dump(RunConfig()).split())  # what was left out
    with pytest.raises(ValueError, match="frozen"):
        written.trees.ntrees = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"trees": {"engine": "catboost", "distribution": "gamma"}},
            "trees of catboost learn only gaussian;",
        ),
        ({"trees": {"distribution": "lognormal"}}, "trees of h2o-xgboost learn only gaussian or poisson or"),
        ({"neural": {"distribution": "normal"}}, "should be 'gaussian', 'lognormal'"),
    ],
)
def test_a_distribution_that_a_model_cannot_learn_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_io.check(given, origin="test")


def test_a_later_source_wins_file_then_option_then_assignment(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("seed = 1\nrepeats = 1\n[trees]\nntrees = 1\nmax_depth = 3\n", encoding="utf-8")
    found = config_io.load(
        file=file, options={"seed": 2, "repeats": 2, "preset": None}, assignments=["seed=3", "trees.ntrees=9"]
    )
    assert (found.seed, found.repeats, found.preset) == (3, 2, None)
    assert (found.trees.ntrees, found.trees.max_depth) == (9, 3)


@pytest.mark.parametrize(
    ("assignment", "start"),
    [
        ("sed=1", "unknown key 'sed'. Did you mean 'seed'? The configuration has seed, repeats,"),
        ("tree.ntrees=1", "unknown key 'tree'. Did you mean 'trees'? The configuration has"),
        ("split.tests=.1", "unknown key 'split.tests'. Did you mean 'split.test'? [split] has"),
        ("neural.qqqqqq=1", "unknown key 'neural.qqqqqq'. [neural] has architecture,"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(assignment: str, start: str) -> None:
    assert refusal(assignments=[assignment]).startswith(f"configuration: {start}")


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("trees.learn_rate = 0.05", "trees.learn_rate", 0.05),
        ("trees.learn_rate=1", "trees.learn_rate", 1.0),
        ("neural.hidden=[64, 32]", "neural.hidden", (64, 32)),
        ("data.target=a=b", "data.target", "a=b"),
        ('data.target="12"', "data.target", "12"),
        ("data.roles.zip.code=categorical", "data.roles", {"zip.code": "categorical"}),
        ("devices.gpus=all", "devices.gpus", "all"),
        ("devices.gpus=0,GPU-4f", "devices.gpus", ("0", "GPU-4f")),
        ("devices.gpus=3", "devices.gpus", ("3",)),
    ],
)
def test_an_assignment_is_toml_or_a_plain_word(assignment: str, key: str, value: object) -> None:
    found: Any = config_io.load(assignments=[assignment])
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("assignment", "found", "expected"),
    [
        ('trees.ntrees="200"', 'trees.ntrees = "200"', "input should be a valid integer."),
        ("trees.ntrees=true", "trees.ntrees = true", "input should be a valid integer."),
        ("trees.learn_rate=inf", "trees.learn_rate = Infinity", "input should be a finite number."),
        ("trees=5", "trees = 5", "it is a section; set one of its keys."),
        ("neural.hidden=[9, 0]", "neural.hidden.1 = 0", "input should be greater than or equal to 1."),
        ("split.test=1.5", "split.test = 1.5", "input should be less than 1."),
        ("preset=quick", 'preset = "quick"', "input should be 'fast', 'balanced' or 'best'."),
        ("devices.gpus=[true]", "devices.gpus = [true]",
         'give "all", or a list of indices or UUIDs such as [0, 1].'),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_in_one_sentence(
    assignment: str, found: str, expected: str
) -> None:
    assert refusal(assignments=[assignment]) == f"configuration: {found} does not fit: {expected}"


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["split.test=0.6", "split.valid=0.4"], "leave no rows to train on"),
        (["split.kind=time"], 'split.kind = "time" needs split.column'),
        (["split.column=when"], "is only read with split.kind time, group or column"),
        (["split.kind=time", "split.column=when", "split.folds=3"], "folds would train on the future"),
        (["devices.gpus=all", "devices.cpu_lanes=2"], "both GPUs and cpu_lanes are asked for"),
        (["trees.tree_method=gpu_hist", "devices.cpu_lanes=2"], 'set it to "hist" or name GPUs'),
        (["trees.tree_method=gpu_hist", "trees.engine=lightgbm"], "trains on CPU only"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(assignments: list[str], words: str) -> None:
    assert words in refusal(assignments=assignments)


def test_an_assignment_that_is_none_says_what_it_should_look_like(tmp_path: Path) -> None:
    for text in ("trees.ntrees", "=5"):
        assert refusal(assignments=[text]) == (
            f"--set {text}: expected KEY=VALUE, such as --set trees.ntrees=200."
        )
    file = tmp_path / "run.toml"
    file.write_text("seed = 1\n", encoding="utf-8")
    assert refusal(file=file, assignments=["seed.more=1"]) == (
        "--set seed.more=1: 'seed' is a single value, not a section."
    )


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for name, content, said in (
        ("absent.toml", None, "there is no such file. Give the path of a run.toml."),
        ("", None, "cannot be read ("),
        ("binary.toml", b"\xff\xfe\x00", "cannot be read ("),
        ("wrong.toml", b"seed = 7\n[trees\n", "not valid TOML ("),
    ):
        file = tmp_path / name
        if content:
            file.write_bytes(content)
        assert refusal(file=file).startswith(f"--config {file}: {said}")
    assert "line 2" in refusal(file=tmp_path / "wrong.toml")
    file.write_text("[trees]\nntrees = 5\nlearning_rate = 0.1\n", encoding="utf-8")
    assert refusal(file=file).startswith(
        f"{file}: unknown key 'trees.learning_rate'. Did you mean 'trees.learn_rate'? [trees] has"
    )


def test_several_targets_are_a_list_and_each_has_a_folder_that_no_other_has() -> None:
    several = config_io.load(options={"data.target": ["net price", "sold"]})
    assert several.data.targets == ("net price", "sold")
    assert several.data.folders == ("net_price", "sold")
    assert config_io.load(options={"data.target": ["a b", "a_b"]}).data.folders == ("a_b_1", "a_b_2")
    for one in ("sold", ["sold"]):
        data = config_io.load(options={"data.target": one}).data
        assert (data.target, data.targets, data.folders) == ("sold", ("sold",), ())
    with pytest.raises(
        ConfigError, match=r"data\.target = .* name one column, or a list of different ones\."
    ):
        config_io.load(options={"data.target": ["sold", "sold"]})
