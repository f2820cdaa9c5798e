"""The configuration of a run: its sections and keys, with their allowed values and defaults.

`sparkgpu.core.config.toml` reads and writes it. A value that is left out (None) is chosen later, from the
task, the table and the device (`sparkgpu.core.plan.make_plan`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from sparkgpu.core.config.context_keys import ContextConfig, ContextKeys
from sparkgpu.core.config.model_keys import (
    OWN,
    ContextModel,
    Models,
    ModelSection,
    NeuralConfig,
    TreesConfig,
    TreesModel,
    model_name,
)
from sparkgpu.core.config.registry.engines import ENGINES, Branch
from sparkgpu.core.config.rule_keys import DecisionConfig, RulesConfig
from sparkgpu.core.config.values import (
    CheckName,
    Count,
    DateFormat,
    Duration,
    Encoding,
    NotNegative,
    Preset,
    Role,
    Section,
    Separator,
    Share,
)
from sparkgpu.core.errors import ConfigError


def _gpu_names(value: Any) -> Any:
    """GPUs in the spellings of a file or of ``--set``: ``[0, 1]``, ``"0,1"``, ``0`` or ``"all"``."""
    if value is None or (isinstance(value, str) and value.strip() == "all"):
        return value and "all"
    names = value.split(",") if isinstance(value, str) else value if isinstance(value, tuple) else (value,)
    if any(isinstance(name, bool) or not isinstance(name, (int, str)) for name in names):
        raise ValueError('give "all", or a list of indices or UUIDs such as [0, 1]')
    return tuple(text for name in names if (text := str(name).strip()))


def _listed(value: Any) -> Any:
    """One name as a list of one."""
    return (value,) if isinstance(value, str) else value


def _one_or_several(value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    if isinstance(value, str) or value is None:
        return value
    if not value or len(set(value)) < len(value):
        raise ValueError("name one column, or a list of different ones")
    return value if len(value) > 1 else value[0]


def _time_limit(value: Any) -> Any:
    """A time limit in Slurm's spelling, also if TOML read it as a time of day (``04:00:00``) or a number."""
    if isinstance(value, time):
        return value.isoformat()
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


SECRET = "secret"
"""The type of a fault whose value no message may show."""

SECRET_NAME = r"(?i)^(?!.*provider).*(secret|passw|token|credential|key([._-]|$)|[._-]sas([._-]|$))"
"""A pattern for Python and Java: the name of a setting with a secret, not with the class that provides it."""

PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:(?!\d+/)[^@\s]*@")
"""Finds user information in an address; ``hdfs://head:8020/a@b`` has none."""

# A value may set a property of Java: -Dx.password=...
_SECRET_VALUE = re.compile(rf"(secret|passw|token)\w*=|{PASSWORD_IN_URL.pattern}", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{(\w+)\}")


def expanded(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Spark settings with the environment's values for ``${NAME}``. Raises `ConfigError` if there is none."""
    found = {}
    for key, value in settings.items():
        reference = _REFERENCE.fullmatch(value)
        if reference and reference[1] not in environ:
            raise ConfigError(
                f'cluster.spark {key} = "{value}": the environment has no {reference[1]}. Set that variable.'
            )
        found[key] = environ[reference[1]] if reference else value
    return found


def _spark_settings(value: Any) -> Any:
    """Spark settings by their full names, from TOML's dotted keys (``spark.executor.memory = "4g"``)."""
    if not isinstance(value, Mapping):
        return value
    named = [(name.removeprefix("spark."), item) for name, item in dotted(value).items()]
    if not all(isinstance(item, (str, bool, int, float)) for _, item in named):
        raise ValueError("each Spark setting must be a text, a number, true or false")
    plain = [(name, str(item)) for name, item in named if not _REFERENCE.fullmatch(str(item))]
    if secrets := [
        name for name, item in plain if re.search(SECRET_NAME, name) or _SECRET_VALUE.search(item)
    ]:
        variable = re.sub(r"\W+", "_", secrets[0]).upper()
        message = (
            "cluster.spark: spark.{key} holds a secret, which run.toml would keep in clear text. Set an "
            "environment variable, and write {reference} for its value."
        )
        raise PydanticCustomError(SECRET, message, {"key": secrets[0], "reference": f'"${{{variable}}}"'})
    return {
        f"spark.{name}": str(item).lower() if isinstance(item, bool) else str(item) for name, item in named
    }


class DataConfig(Section):
    """``[data]``. `source` None means the built-in demo; `roles` maps columns to roles.

    `target` is the column to predict, or a list of several.

    `valid` and `test` are tables with the user's own validation and test rows; all rows of `source` are
    shared among the other splits then. Text tables may have a `separator`, a `decimal` sign, a `date_format`
    (of Python's strptime) and an `encoding` (a name that Python knows) of their own.
    A column with more than `max_categories` levels keeps that many, and the rarer ones become one; with
    `target_means`, the mean target of each level of a column with many is a feature as well.
    """

    source: str | None = None
    valid: str | None = None
    test: str | None = None
    separator: Separator | None = None
    decimal: Literal[".", ","] | None = None
    date_format: DateFormat | None = None
    encoding: Encoding | None = None
    target: Annotated[str | tuple[str, ...] | None, AfterValidator(_one_or_several)] = None
    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    ignore: tuple[str, ...] = ()
    weight: str | None = None
    class_weights: Literal["none", "balanced"] = "none"
    roles: dict[str, Role] = Field(default_factory=dict)
    max_categories: Count = 1000
    target_means: bool = True

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict; none if the run has to ask for one."""
        return (self.target,) if isinstance(self.target, str) else self.target or ()

    @property
    def folders(self) -> tuple[str, ...]:
        """Of several targets, the name of each one's folder in ``targets/``; none of a single one."""
        if len(self.targets) < 2:
            return ()
        names = [re.sub(r"[^0-9A-Za-z_-]+", "_", name)[:60] or "_" for name in self.targets]
        if len(set(map(str.lower, names))) < len(names):
            names = [f"{name}_{place}" for place, name in enumerate(names, start=1)]
        return tuple(names)


class PrepareConfig(Section):
    """``[prepare]``. `by` tells what makes the features of each row.

    That is Spark's pipeline, or Arrow without a JVM; ``auto`` is ``spark`` wherever the run has a session.
    """

    by: Literal["auto", "spark", "arrow"] = "auto"


class SplitConfig(Section):
    """``[split]``. `test` and `valid` are shares of all usable rows; `folds` asks for cross-validation."""

    kind: Literal["random", "time", "group", "column"] = "random"
    column: str | None = None
    test: Share = 0.15
    valid: Share = 0.15
    folds: Annotated[int, Field(ge=2, le=100)] | None = None


class DevicesConfig(Section):
    """``[devices]``. If both are None: every visible GPU, or one CPU lane if there is none."""

    gpus: Annotated[
        Literal["all"] | tuple[str, ...] | None,
        BeforeValidator(_gpu_names, json_schema_input_type=str | int | list[str | int]),
    ] = None
    cpu_lanes: Count | None = None


class ClusterConfig(Section):
    """``[cluster]``: runs on more than one machine.

    `master` is a Spark master (``spark://host:7077``, ``yarn``, ``k8s://...``; under spark-submit that of the
    command), and `spark` are Spark settings for it. `lanes` chooses the use of executors: each model over
    all of them, or one lane on each. `executors` is the number to wait for (None: those that come within
    seconds).

    `nodes` is the number of machines for one network, whose ranks a launcher starts
    (`sparkgpu.core.host.rank_command`).
    `interface` names the network interface between them, `infiniband` tells whether NCCL may use InfiniBand,
    and `p2p_level` is NCCL's limit for the distance of two GPUs that communicate without the host's memory.
    None leaves the choice to NCCL and gloo.

    `h2o_gpus` throws a switch that H2O's source reads: its trees may use GPUs in a cloud of several nodes.
    Nobody has proven that it works; a trial whose trees did not use the GPU fails.
    """

    master: str | None = None
    spark: Annotated[
        dict[str, str], BeforeValidator(_spark_settings, json_schema_input_type=dict[str, Any])
    ] = Field(default_factory=dict)
    lanes: Literal["cloud", "executors"] = "cloud"
    executors: Count | None = None
    nodes: Count = 1
    interface: str | None = None
    infiniband: bool | None = None
    p2p_level: Literal["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"] | None = None
    h2o_gpus: bool = False


class SlurmConfig(Section):
    """``[slurm]``: settings for the scripts of `sparkgpu slurm write`; a run itself reads none of them.

    `cpu_partition` is for trees without GPUs (None: `partition`). `cpus_per_node` None means whole nodes. The
    scripts load `modules`, then run the lines of `setup` (None: this project's activation). `notice_s`
    seconds before the time limit, a run is told to save and stop.
    """

    partition: str | None = None
    cpu_partition: str | None = None
    account: str | None = None
    time: Annotated[str | None, BeforeValidator(_time_limit, json_schema_input_type=str | int)] = None
    cpus_per_node: Count | None = None
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] | None = None
    notice_s: Count = 180


class ReportConfig(Section):
    """``[report]``: how much the report of a run holds.

    ``full`` explains the models (importance and partial dependence, by predicting changed rows) and examines
    the table; ``short`` shows results alone. A run in which a check of `fail_on` fails ends with exit code 4,
    after everything is written.
    """

    level: Literal["full", "short"] = "full"
    fail_on: tuple[CheckName, ...] = ()


class CostConfig(Section):
    """``[cost]``: `price_per_hour` of one device, in any currency, for the cost of a run."""

    price_per_hour: NotNegative | None = None


class RunConfig(Section):
    """One run. `repeats` None means one per lane, `preset` None means fast on CPU and balanced on GPU.

    `models` are the models to train: trees and neural, and further ones (`sparkgpu.core.config.model_keys`);
    with only one there is no comparison and no blend. `time_limit` is for the whole run, in seconds or as
    ``10m``: training ends early enough, and `repeats` None means as many as fit. With `calibrate`,
    probabilities are scaled by a temperature fitted on the validation rows (None: with more than two classes,
    whose models are compared by log loss). `metric` decides the search, the blend, the leader and the
    verdict, in place of the task's own. `search` is the number of settings to try for each model; the best
    take part as models of their own. `intervals` is the share of rows whose truth the models' intervals, or
    sets of classes, should hold (None: they have none). By the columns in `groups` each model is also scored
    in groups of the test rows. A worker that neither reports, computes, reads nor writes for `hang_after_s`
    seconds counts as hung; 0 turns this off. Python's logging and Spark write what is of `log_level` or worse
    to each lane's log.
    """

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 7
    repeats: Count | None = None
    preset: Preset | None = None
    models: Models = ("trees", "neural")
    time_limit: Duration | None = None
    calibrate: bool | None = None
    metric: str | None = None
    search: Annotated[int, Field(ge=2)] | None = None
    intervals: Annotated[float, Field(ge=0.5, lt=1)] | None = None
    groups: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    hang_after_s: NotNegative = 60.0
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    data: DataConfig = DataConfig()
    prepare: PrepareConfig = PrepareConfig()
    split: SplitConfig = SplitConfig()
    decision: DecisionConfig = DecisionConfig()
    rules: RulesConfig = RulesConfig()
    devices: DevicesConfig = DevicesConfig()
    cluster: ClusterConfig = ClusterConfig()
    slurm: SlurmConfig = SlurmConfig()
    trees: TreesConfig = TreesConfig()
    neural: NeuralConfig = NeuralConfig()
    tabicl: ContextKeys = ContextKeys()
    report: ReportConfig = ReportConfig()
    cost: CostConfig = CostConfig()

    @property
    def model_names(self) -> tuple[str, ...]:
        return tuple(model_name(model) for model in self.models)

    @property
    def is_best_in_time(self) -> bool:
        """Whether a time limit leaves it to the preset `best` how many models train over how many folds."""
        return self.preset == "best" and self.time_limit is not None

    def calibrates(self, task: str) -> bool:
        """Whether probabilities of this task are scaled."""
        return task == "multiclass" if self.calibrate is None else self.calibrate and task != "regression"

    @property
    def branches(self) -> frozenset[Branch]:
        return frozenset(self.branch(name) for name in self.model_names)

    @property
    def trees_by_name(self) -> dict[str, TreesConfig]:
        found = {name: self.section(name) for name in self.model_names}
        return {name: section for name, section in found.items() if isinstance(section, TreesConfig)}

    @property
    def networks(self) -> list[NeuralConfig]:
        found = map(self.section, self.model_names)
        return [section for section in found if isinstance(section, NeuralConfig)]

    def branch(self, name: str) -> Branch:
        return "trees" if isinstance(self.section(name), TreesConfig) else "neural"

    def section(self, name: str) -> ModelSection:
        """The settings of the model called `name`: its own, and for the rest those of its kind."""
        model = next((model for model in self.models if model_name(model) == name), name)
        if isinstance(model, str):
            return self.trees if model == OWN[0] else self.neural
        own = {key: getattr(model, key) for key in model.model_fields_set - {"name"}}
        if isinstance(model, ContextModel):  # a package's own has no section
            rest = self.tabicl.model_dump() if model.engine == "tabicl" else {}
            return ContextConfig(**{**rest, **own})
        if not isinstance(model, TreesModel):
            return self.neural.model_copy(update=own)
        if self.trees.tree_method == "gpu_hist" and not ENGINES.find(model.engine_name).on_gpu:
            own = {"tree_method": "auto", **own}
        return self.trees.model_copy(update=own)


def dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys; a mapping with the user's own keys stays one value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and name not in _OWN_KEYS:
            flat.update(dotted(value, f"{name}."))
        else:
            flat[name] = value
    return flat


_OWN_KEYS = ("data.roles", "decision.costs", "cluster.spark", "rules.monotone")
