"""The JSON Schemas describe the files, and the stored ones are up to date."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from test_config import EVERY_KIND_OF_VALUE
from test_results import written

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.toml import run_schema
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.devices import Machine
from sparkgpu.core.rundir.metrics_json import metrics_schema
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.source import Source
from sparkgpu.runs.folder import run_folder

Call = Callable[..., tuple[int, str, str]]

KEPT = Path(__file__).resolve().parents[2] / "docs" / "schemas"


def complaints(schema: str, value: Any) -> list[str]:
    """The places where `value` does not fit `schema`, which must itself be a valid schema."""
    found = json.loads(schema)
    kind = jsonschema.validators.validator_for(found)
    kind.check_schema(found)
    return [
        ".".join(map(str, error.absolute_path)) or error.message for error in kind(found).iter_errors(value)
    ]


@pytest.mark.parametrize("name", ["run", "metrics"])
def test_the_kept_schema_is_what_the_command_prints(name: str, call: Call) -> None:
    kept = (KEPT / f"{name}.schema.json").read_text(encoding="utf-8")
    assert call("schema", name) == (0, kept, ""), f"sparkgpu schema {name} > docs/schemas/{name}.schema.json"


def test_a_configuration_fits_its_schema() -> None:
    for values in ({}, EVERY_KIND_OF_VALUE):
        text = config_io.dump(config_io.check(values, origin="test"))
        assert complaints(run_schema(), tomllib.loads(text)) == []


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("devices.gpus = [0, 1]", []), ('devices.gpus = "0,1"', []), ('devices.gpus = ["GPU-4f"]', []),
        ('slurm.time = "04:00:00"', []), ("slurm.time = 90", []), ('models = ["trees"]', []),
        ('cluster.spark.executor.memory = "4g"', []), ('cluster.spark."spark.executor.cores" = 2', []),
        ("trees.ntrees = 0", ["trees.ntrees"]), ('neural.epochs = "many"', ["neural.epochs"]),
        ("data.sorce = 1", ["data"]), ("devices.gpus = [0.5]", ["devices.gpus"]),
    ],
)  # fmt: skip
def test_what_a_run_takes_in_any_spelling_fits_the_schema_and_what_it_refuses_does_not(
    text: str, places: list[str]
) -> None:
    assert complaints(run_schema(), tomllib.loads(text)) == places
    with pytest.raises(ConfigError) if places else nullcontext():
        config_io.check(tomllib.loads(text), origin="test")


def test_the_first_line_of_run_toml_names_the_schema_that_lies_beside_it(tmp_path: Path) -> None:
    machine = Machine(cores=1, memory_bytes=2**30)
    source = Source(name="x.csv", location="x.csv", format="csv")
    with run_folder(RunConfig(), tmp_path / "run", source, 0.0, machine, resume=False, warn=print) as paths:
        pass
    first, *_ = paths.config.read_text(encoding="utf-8").splitlines()
    assert first == f"#:schema ./{paths.config_schema.name}"
    assert paths.config_schema.read_text(encoding="utf-8") == run_schema()
    assert RunPaths(root=tmp_path).config_schema.name == config_io.SCHEMA_FILE
    assert config_io.load(file=paths.config) == RunConfig()


def test_results_fit_their_schema() -> None:
    assert complaints(metrics_schema(), written()) == []
    for name in ("comparison", "models"):
        without = {key: value for key, value in written().items() if key != name}
        assert complaints(metrics_schema(), without) == [f"'{name}' is a required property"]
