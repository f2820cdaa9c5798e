"""Reads a run's configuration from ``run.toml``, ``--set`` and the command line, and writes it.

A later source wins: file, command line, ``--set``. TOML has no null: an open key is simply left out.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sparkgpu.core.config.keys import SECRET, RunConfig
from sparkgpu.core.config.model_keys import (
    OWN,
    ContextModel,
    NetworkModel,
    TreesConfig,
    TreesModel,
    model_name,
    with_models,
)
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.config.rule_keys import DecisionConfig
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.words import nearest

_MOST_LETTERS = 120
SCHEMA_FILE = "run.schema.json"


def load(
    *, file: Path | None = None, options: Mapping[str, Any] | None = None, assignments: Iterable[str] = ()
) -> RunConfig:
    """Build the configuration of a run.

    `options` are dotted keys from the command line or the Python door (``{"data.target": "income"}``; None
    values are skipped); ``also`` names models to be added to `models`. `assignments` are ``KEY=VALUE`` texts
    of ``--set``; the value is TOML or, if it is not valid TOML, a plain string. Raises `ConfigError` for
    anything that does not exist or fit.
    """
    values: dict[str, Any] = _read(file) if file else {}
    given = {key: value for key, value in (options or {}).items() if value is not None}
    also = given.pop("also", None)
    for key, value in given.items():
        _assign(values, key, value, f"option {key}")
    for text in assignments:
        key, mark, value = text.partition("=")
        if not mark or not key.strip():
            raise ConfigError(f"--set {text}: expected KEY=VALUE, such as --set trees.ntrees=200.")
        _assign(values, key.strip(), _value(value.strip()), f"--set {text}")
    if also is not None:
        values["models"] = with_models(values.get("models"), also)
    return check(values, origin=str(file) if file else "configuration")


def check(values: Mapping[str, Any], *, origin: str) -> RunConfig:
    """Turn plain values into a `RunConfig`; the first fault becomes one sentence."""
    try:
        config = RunConfig.model_validate(_tuples(values))
    except ValidationError as error:
        raise ConfigError(f"{origin}: {_sentence(error)}") from None
    config = _keeping_rules(config, origin)
    _check_together(config, origin)
    return config


def dump(config: RunConfig) -> str:
    """The configuration as TOML, which loads as an equal object; its first line names `SCHEMA_FILE`."""
    values = config.model_dump(mode="json", exclude_none=True)
    says_so = config.models == OWN and config.is_best_in_time  # left out, it would mean more than these
    if config.models[: len(OWN)] == OWN and not says_so:  # tables alone are added to these
        further = values.pop("models")[len(OWN) :]
        values |= {"models": further} if further else {}
    return f"#:schema ./{SCHEMA_FILE}\n" + tomli_w.dumps(values)


def _read(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"--config {file}: there is no such file. Give the path of a run.toml.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {file}: cannot be read ({error}).") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--config {file}: not valid TOML ({error}). Correct that line.") from None
    if isinstance(values.get("neural"), dict):
        values["neural"].pop("dataloader", None)  # earlier versions wrote it; nothing reads it any more
    return values


def _assign(values: dict[str, Any], key: str, value: Any, origin: str) -> None:
    *sections, last = key.split(".", maxsplit=2)
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{origin}: {section!r} is a single value, not a section.")
        values = inner
    values[last] = value


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


_KINDS = {"trees": TreesModel, "network": NetworkModel, "context": ContextModel}
# TOML's words for pydantic's messages, which use Python's words.
_EXPECTED = {"model_type": "it is a section; set one of its keys", "dict_type": "input should be a table"}


def _sentence(error: ValidationError) -> str:
    # A union reports one error per member; the shortest path is the key that the user set.
    first = min(error.errors(), key=lambda item: (item["type"] != "extra_forbidden", len(item["loc"])))
    if first["type"] == SECRET:
        return first["msg"]
    path = tuple(str(part) for part in first["loc"])
    kind: Any = RunConfig
    place = "The configuration"
    if path[0] == "models" and len(path) > 3:  # the number and the kind of the model stand before its key
        kind, place = _KINDS[path[2]], "A table of [[models]]"
        path = path[3:]
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        for section in path[:-1]:
            kind, place = kind.model_fields[section].annotation, f"[{section}]"
        names = list(kind.model_fields)
        dotted = [".".join((*path[:-1], name)) for name in names]
        return f"unknown key {key!r}.{nearest(key, dotted)} {place} has {', '.join(names)}."
    found = json.dumps(first["input"], default=str, ensure_ascii=False)
    found = found if len(found) <= _MOST_LETTERS else f"{found[:_MOST_LETTERS]}..."
    message = _EXPECTED.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    if first["type"] == "tuple_type":
        message = (
            f"it should be a list. In a shell: --set '{key}={json.dumps([first['input']], default=str)}'"
        )
    end = "" if message.endswith("?") else "."
    return f"{key} = {found} does not fit: {message[0].lower()}{message[1:]}{end}"


def _keeping_rules(config: RunConfig, origin: str) -> RunConfig:
    """Only the models that keep ``[rules]``, with the keys that this needs; of our own, `neural` goes.

    Raises `ConfigError` for another model that cannot keep them, and if none is left.
    """
    asked, kept = config.rules.asked, []
    for model in config.models if asked else ():
        section = config.section(name := model_name(model))
        entry = ENGINES.find(section.engine_name)
        broken = [rule for rule in asked if rule not in entry.keeps]
        if broken and name == OWN[1] and len(config.models) > 1:
            continue
        if broken:
            able = [one.name for one in ENGINES.all() if set(asked) <= set(one.keeps)]
            raise ConfigError(
                f"{origin}: rules.{broken[0]}: model {name!r} ({entry.name}) cannot keep such rules. Leave "
                f"it out; trees of {' or '.join(able)} can."
            )
        needed = entry.monotone_with if "monotone" in asked else {}
        for key, fit in needed.items():
            if (value := getattr(section, key)) not in (None, "auto", *fit):
                raise ConfigError(
                    f'{origin}: rules.monotone: {name}.{key} = "{value}": trees of {entry.name} keep it only '
                    f"with {' or '.join(fit)}. Choose one of these, or another engine."
                )
        update = {key: fit[0] for key, fit in needed.items() if getattr(section, key) in (None, "auto")}
        if isinstance(model, str):
            config = config.model_copy(update={"trees": config.trees.model_copy(update=update)})
        kept.append(model if isinstance(model, str) else model.model_copy(update=update))
    return config.model_copy(update={"models": tuple(kept)}) if asked else config


def _check_together(config: RunConfig, origin: str) -> None:
    split, devices = config.split, config.devices
    if split.test + split.valid >= 1.0:
        raise ConfigError(
            f"{origin}: split.test = {split.test} and split.valid = {split.valid} leave no rows to train on; "
            "choose shares that sum to less than 1."
        )
    if split.kind != "random" and not split.column:
        raise ConfigError(
            f'{origin}: split.kind = "{split.kind}" needs split.column, the column to split by.'
        )
    if split.kind == "random" and split.column:
        raise ConfigError(
            f'{origin}: split.column = "{split.column}" is only read with split.kind time, group or column.'
        )
    if split.folds and split.kind == "time":
        raise ConfigError(
            f'{origin}: split.folds and split.kind = "time" exclude each other: folds would train on the '
            "future. Leave one out."
        )
    if devices.gpus is not None and devices.cpu_lanes is not None:
        raise ConfigError(f"{origin}: both GPUs and cpu_lanes are asked for; choose one of them.")
    if "group_gap" in config.report.fail_on and not (config.groups or config.rules.without):
        raise ConfigError(f'{origin}: report.fail_on = ["group_gap"] needs columns. Name them by --groups.')
    if config.data.folders:
        _check_several(config, origin)
    if config.cluster.nodes > 1 and config.cluster.master is not None:
        raise ConfigError(
            f"{origin}: cluster.nodes = {config.cluster.nodes} spreads one run's network over machines, and "
            f"cluster.master = {config.cluster.master!r} moves all of it to a Spark cluster; leave one out."
        )
    for name, trees in config.trees_by_name.items():
        _check_trees(trees, name, devices.cpu_lanes, origin)


def _check_several(config: RunConfig, origin: str) -> None:
    """Refuse what a run with several targets cannot do yet."""
    for key, is_asked in (
        ("search", config.search is not None),
        ("decision", config.decision != DecisionConfig()),
        ("cluster.master", config.cluster.master is not None),
    ):
        if is_asked:
            raise ConfigError(
                f"{origin}: {key} takes one target, and data.target names {len(config.data.targets)}. Leave "
                "it out, or run each target alone."
            )


def _check_trees(trees: TreesConfig, name: str, cpu_lanes: int | None, origin: str) -> None:
    entry = ENGINES.find(trees.engine_name)
    if trees.tree_method == "gpu_hist" and cpu_lanes is not None:
        raise ConfigError(
            f'{origin}: {name}.tree_method = "gpu_hist" needs a GPU, but cpu_lanes = {cpu_lanes} '
            'asks for CPU lanes; set it to "hist" or name GPUs.'
        )
    if trees.tree_method == "gpu_hist" and not entry.on_gpu:
        raise ConfigError(
            f'{origin}: {name}.engine = "{trees.engine}" trains on CPU only; choose tree_method "hist".'
        )
    if trees.grow_policy is not None and trees.grow_policy not in entry.grows:
        raise ConfigError(
            f'{origin}: {name}.grow_policy = "{trees.grow_policy}": trees of {entry.name} grow '
            f"{' or '.join(entry.grows)}; choose one of these."
        )
    if trees.distribution not in entry.distributions:
        raise ConfigError(
            f'{origin}: {name}.distribution = "{trees.distribution}": trees of {entry.name} learn only '
            f"{' or '.join(entry.distributions)}; choose one of these, or another engine."
        )


OPTIONS = {
    "source": "data.source",
    "valid": "data.valid",
    "test": "data.test",
    "target": "data.target",
    "task": "data.task",
    "gpus": "devices.gpus",
    "cpu_lanes": "devices.cpu_lanes",
    "repeats": "repeats",
    "strategy": "neural.strategy",
    "preset": "preset",
    "also": "also",
    "time_limit": "time_limit",
    "search": "search",
    "metric": "metric",
    "intervals": "intervals",
    "groups": "groups",
    "nodes": "cluster.nodes",
    "cpus_per_node": "slurm.cpus_per_node",
    "partition": "slurm.partition",
    "cpu_partition": "slurm.cpu_partition",
    "account": "slurm.account",
    "time": "slurm.time",
    "modules": "slurm.modules",
    "setup": "slurm.setup",
}


def keyed(**options: Any) -> dict[str, Any]:
    """The values of options by the keys that they set, for `sparkgpu.core.config.toml.load`."""
    return {OPTIONS[name]: value for name, value in options.items()}


class _OfToml(GenerateJsonSchema):
    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        return {key: value for key, value in found.items() if key != "default" or value is not None}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def run_schema() -> str:
    """The JSON Schema with which an editor completes keys: Draft 7, which TOML editors support."""
    found = RunConfig.model_json_schema(schema_generator=_OfToml)
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **found, "title": "run.toml of sparkgpu"}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
