"""A configuration is one immutable object, is written back exactly, and is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkgpu.config import toml as config_io
from sparkgpu.config.keys import RunConfig
from sparkgpu.errors import ConfigError

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


def test_what_was_dumped_loads_as_an_equal_object(tmp_path: Path) -> None:
    for values in ({}, EVERY_KIND_OF_VALUE):
        written = config_io.check(values, origin="test")
        file = tmp_path / "run.toml"
        file.write_text(config_io.dump(written), encoding="utf-8")
        assert config_io.load(file=file) == written
    assert written.data.roles == {"zip.code": "categorical", "größe": "numeric"}
    assert written.neural.hidden == (64, 32)
    assert written.trees.min_rows == 5e-6


def test_a_value_that_was_left_out_is_left_out_of_the_file() -> None:
    assert "ntrees" not in config_io.dump(RunConfig())
    assert "folds" not in config_io.dump(RunConfig())


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().trees.ntrees = 5  # type: ignore[misc]


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
        (
            "trees.ntree=1",
            "unknown key 'trees.ntree'. Did you mean 'trees.ntrees'? [trees] has engine, ntrees,",
        ),
        ("data.taget=x", "unknown key 'data.taget'. Did you mean 'data.target'? [data] has"),
        ("split.tests=.1", "unknown key 'split.tests'. Did you mean 'split.test'? [split] has"),
        (
            "devices.gpu=[0]",
            "unknown key 'devices.gpu'. Did you mean 'devices.gpus'? [devices] has gpus, cpu_lanes.",
        ),
        (
            "neural.LearningRate=1",
            "unknown key 'neural.LearningRate'. Did you mean 'neural.learning_rate'? [neural] has",
        ),
        ("neural.qqqqqq=1", "unknown key 'neural.qqqqqq'. [neural] has architecture,"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_refused_with_the_nearest_name(assignment: str, start: str) -> None:
    assert refusal(assignments=[assignment]).startswith(f"configuration: {start}")


def test_an_unknown_key_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[trees]\nntrees = 5\nlearning_rate = 0.1\n", encoding="utf-8")
    assert refusal(file=file).startswith(
        f"{file}: unknown key 'trees.learning_rate'. Did you mean 'trees.learn_rate'? [trees] has"
    )


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("trees.ntrees=200", "trees.ntrees", 200),
        ("trees.learn_rate = 0.05", "trees.learn_rate", 0.05),
        ("trees.learn_rate=1", "trees.learn_rate", 1.0),
        ("neural.hidden=[64, 32]", "neural.hidden", (64, 32)),
        ("data.target=income", "data.target", "income"),
        ("data.target=a=b", "data.target", "a=b"),
        ('data.target="12"', "data.target", "12"),
        ('data.ignore=["a", "b c"]', "data.ignore", ("a", "b c")),
        ("data.roles.zip.code=categorical", "data.roles", {"zip.code": "categorical"}),
        ("devices.gpus=all", "devices.gpus", "all"),
        ("devices.gpus=[0, 1]", "devices.gpus", ("0", "1")),
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
    ("assignment", "message"),
    [
        ("trees.ntrees=many", 'trees.ntrees = "many" does not fit: input should be a valid integer.'),
        ('trees.ntrees="200"', 'trees.ntrees = "200" does not fit: input should be a valid integer.'),
        ("trees.ntrees=true", "trees.ntrees = true does not fit: input should be a valid integer."),
        ("trees.ntrees=0", "trees.ntrees = 0 does not fit: input should be greater than or equal to 1."),
        (
            "trees.learn_rate=inf",
            "trees.learn_rate = Infinity does not fit: input should be a finite number.",
        ),
        ("trees=5", "trees = 5 does not fit: it is a section; set one of its keys."),
        ("neural.hidden=64", "neural.hidden = 64 does not fit: input should be a list."),
        (
            "neural.hidden=[64, 0]",
            "neural.hidden.1 = 0 does not fit: input should be greater than or equal to 1.",
        ),
        ("data.target=12", "data.target = 12 does not fit: input should be a valid string."),
        ("split.test=1.5", "split.test = 1.5 does not fit: input should be less than 1."),
        ("preset=quick", "preset = \"quick\" does not fit: input should be 'fast', 'balanced' or 'best'."),
        (
            "data.roles.age=number",
            "data.roles.age = \"number\" does not fit: input should be 'numeric', 'categorical', 'boolean', "
            "'timestamp' or 'ignore'.",
        ),
        (
            "devices.gpus=[true]",
            'devices.gpus = [true] does not fit: give "all", or a list of indices or UUIDs such as [0, 1].',
        ),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_in_one_sentence(assignment: str, message: str) -> None:
    assert refusal(assignments=[assignment]) == f"configuration: {message}"


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            ["split.test=0.6", "split.valid=0.4"],
            "split.test = 0.6 and split.valid = 0.4 leave no rows to train on; choose shares that "
            "sum to less than 1.",
        ),
        (
            ["split.kind=time"],
            'split.kind = "time" needs split.column, the column to split by.',
        ),
        (
            ["split.column=when"],
            'split.column = "when" is only read with split.kind time, group or column.',
        ),
        (
            ["split.kind=time", "split.column=when", "split.folds=3"],
            'split.folds and split.kind = "time" exclude each other: folds would train on the '
            "future. Leave one out.",
        ),
        (
            ["devices.gpus=all", "devices.cpu_lanes=2"],
            "both GPUs and cpu_lanes are asked for; choose one of them.",
        ),
        (
            ["trees.tree_method=gpu_hist", "devices.cpu_lanes=2"],
            'trees.tree_method = "gpu_hist" needs a GPU, but cpu_lanes = 2 asks for CPU lanes; '
            'set it to "hist" or name GPUs.',
        ),
        (
            ["trees.tree_method=gpu_hist", "trees.engine=lightgbm"],
            'trees.engine = "lightgbm" trains on CPU only; choose tree_method "hist".',
        ),
    ],
)  # fmt: skip
def test_keys_that_contradict_each_other_are_refused(assignments: list[str], message: str) -> None:
    assert refusal(assignments=assignments) == f"configuration: {message}"


def test_an_assignment_without_key_or_value_says_what_it_should_look_like() -> None:
    for text in ("trees.ntrees", "=5"):
        assert refusal(assignments=[text]) == (
            f"--set {text}: expected KEY=VALUE, such as --set trees.ntrees=200."
        )


def test_a_key_below_a_single_value_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("seed = 1\n", encoding="utf-8")
    assert refusal(file=file, assignments=["seed.more=1"]) == (
        "--set seed.more=1: 'seed' is a single value, not a section."
    )


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    absent = tmp_path / "absent.toml"
    assert refusal(file=absent) == (f"--config {absent}: there is no such file. Give the path of a run.toml.")
    assert refusal(file=tmp_path).startswith(f"--config {tmp_path}: cannot be read (")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert refusal(file=binary).startswith(f"--config {binary}: cannot be read (")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("seed = 7\n[trees\n", encoding="utf-8")
    message = refusal(file=wrong)
    assert message.startswith(f"--config {wrong}: not valid TOML (")
    assert "line 2" in message
