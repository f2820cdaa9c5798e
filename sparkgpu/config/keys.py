"""The configuration of a run: its sections and keys, what each may hold and what it is when left out.

`sparkgpu.config.toml` reads and writes it. A value left out (None) is decided later, from the task, the table
and the device (`sparkgpu.plan.plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from sparkgpu.config.engines import ENGINES
from sparkgpu.config.networks import NETWORKS
from sparkgpu.config.strategies import STRATEGIES

Preset = Literal["fast", "balanced", "best"]
Role = Literal["numeric", "categorical", "boolean", "timestamp", "ignore"]
TreeMethod = Literal["auto", "exact", "approx", "hist", "gpu_hist"]
Precision = Literal["auto", "float32", "tf32", "bfloat16", "float16"]
Schedule = Literal["constant", "cosine", "coslog4"]
Model = Literal["trees", "neural"]

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]


def _tree_engine(name: str) -> str:
    return ENGINES.find(name, lambda entry: entry.branch == "trees").name


def _known_or_auto(name: str) -> str:
    return name if name == "auto" else STRATEGIES.find(name).name


def _ours(*names: str) -> WithJsonSchema:
    """For editors: our own names to choose from, and any other that a package may bring."""
    return WithJsonSchema({"anyOf": [{"enum": list(names)}, {"type": "string"}]})


TreeEngine = Annotated[
    str,
    AfterValidator(_tree_engine),
    _ours(*(entry.name for entry in ENGINES.own() if entry.branch == "trees")),
]
Architecture = Annotated[
    str,
    AfterValidator(lambda name: NETWORKS.find(name).name),
    _ours(*(entry.name for entry in NETWORKS.own())),
]
Strategy = Annotated[
    str, AfterValidator(_known_or_auto), _ours("auto", *(entry.name for entry in STRATEGIES.own()))
]


def _gpu_names(value: Any) -> Any:
    """GPUs as a file or ``--set`` may spell them: ``[0, 1]``, ``"0,1"``, ``0`` or ``"all"``."""
    if value is None or (isinstance(value, str) and value.strip() == "all"):
        return value and "all"
    names = value.split(",") if isinstance(value, str) else value if isinstance(value, tuple) else (value,)
    if any(isinstance(name, bool) or not isinstance(name, (int, str)) for name in names):
        raise ValueError('give "all", or a list of indices or UUIDs such as [0, 1]')
    return tuple(text for name in names if (text := str(name).strip()))


def _time_limit(value: Any) -> Any:
    """A limit that TOML takes for a time of day (``04:00:00``) or a number of minutes, as Slurm spells it."""
    if isinstance(value, time):
        return value.isoformat()
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _spark_settings(value: Any) -> Any:
    """Settings of Spark by their whole names, from TOML's dotted keys (``spark.executor.memory = "4g"``)."""
    if not isinstance(value, Mapping):
        return value
    named = [(name.removeprefix("spark."), item) for name, item in dotted(value).items()]
    if not all(isinstance(item, (str, bool, int, float)) for _, item in named):
        raise ValueError("each setting of Spark is a text, a number, true or false")
    return {
        f"spark.{name}": str(item).lower() if isinstance(item, bool) else str(item) for name, item in named
    }


class Section(BaseModel):
    """Base of the sections: immutable, unknown keys refused, no value of another type taken for its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DataConfig(Section):
    """``[data]``. `source` None is the built-in demo; `roles` maps a column to a role of its own."""

    source: str | None = None
    target: str | None = None
    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    ignore: tuple[str, ...] = ()
    weight: str | None = None
    class_weights: Literal["none", "balanced"] = "none"
    roles: dict[str, Role] = {}
    max_categories: Count = 1000


class SplitConfig(Section):
    """``[split]``. `test` and `valid` are shares of all usable rows; `folds` asks for cross-validation."""

    kind: Literal["random", "time", "group", "column"] = "random"
    column: str | None = None
    test: Share = 0.15
    valid: Share = 0.15
    folds: Annotated[int, Field(ge=2, le=100)] | None = None


class DevicesConfig(Section):
    """``[devices]``. Both None: every visible GPU, and one CPU lane where there is none."""

    gpus: Annotated[Literal["all"] | tuple[str, ...] | None, BeforeValidator(_gpu_names)] = None
    cpu_lanes: Count | None = None


class ClusterConfig(Section):
    """``[cluster]``: where a run goes past one machine.

    `master` is a Spark master (``spark://host:7077``, ``yarn``, ``k8s://...``; under spark-submit that of the
    command) and `spark` are settings of Spark for it. `lanes` says what executors are: one H2O cloud and
    one gang of ranks over all of them, or a lane each. `executors` is how many to wait for (None: those that
    come).

    `nodes` are the machines that one network trains on, started by a launcher (`sparkgpu.host.launcher`).
    `interface` names the network interface between them, `infiniband` whether NCCL may use InfiniBand and
    `p2p_level` how far apart two GPUs may be that talk past the host's memory, in NCCL's words; None leaves
    each to NCCL and gloo.
    """

    master: str | None = None
    spark: Annotated[dict[str, str], BeforeValidator(_spark_settings)] = {}
    lanes: Literal["cloud", "executors"] = "cloud"
    executors: Count | None = None
    nodes: Count = 1
    interface: str | None = None
    infiniband: bool | None = None
    p2p_level: Literal["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"] | None = None


class SlurmConfig(Section):
    """``[slurm]``: what `sparkgpu slurm write` puts into its scripts; a run itself reads none of it.

    `cpu_partition` is for trees without GPUs (None: `partition`). `cpus_per_node` None takes whole nodes.
    `modules` are loaded, then the lines of `setup` run (None: this project's activation). `notice_s` is how
    long before the time limit a run is told to save and stop.
    """

    partition: str | None = None
    cpu_partition: str | None = None
    account: str | None = None
    time: Annotated[str | None, BeforeValidator(_time_limit)] = None
    cpus_per_node: Count | None = None
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] | None = None
    notice_s: Count = 180


class TreesConfig(Section):
    """``[trees]``, in H2O's spelling. `tree_method="gpu_hist"` means hist on the lane's GPU.

    `max_depth` 0 is no limit, as the engines' documentation has it.
    """

    engine: TreeEngine = "h2o-xgboost"
    ntrees: Count | None = None
    max_depth: Annotated[int, Field(ge=0)] | None = None
    learn_rate: Positive | None = None
    tree_method: TreeMethod = "auto"
    early_stopping_rounds: Annotated[int, Field(ge=0)] | None = None
    score_tree_interval: Count = 10
    min_rows: NotNegative | None = None
    sample_rate: Fraction | None = None
    col_sample_rate: Fraction | None = None
    col_sample_rate_per_tree: Fraction | None = None
    reg_lambda: NotNegative | None = None
    reg_alpha: NotNegative | None = None
    max_bins: Annotated[int, Field(ge=2)] | None = None


class DataLoaderConfig(Section):
    """``[neural.dataloader]``, in torch's spelling."""

    num_workers: Annotated[int, Field(ge=0)] = 0
    pin_memory: bool = True
    persistent_workers: bool = True
    prefetch_factor: Count = 2


class NeuralConfig(Section):
    """``[neural]``.

    `hidden` are the widths of the blocks. Of tabm, `members` is the number of predictions of a row (the k of
    its paper), `num_bins` and `embedding_dim` belong to the piecewise-linear embeddings of numbers.
    `schedule` is how the learning rate changes over `epochs`; `patience` counts epochs without gain (0: no
    early stopping). `batch_size` is that of a step, whatever spreads it; `micro_batch_size` is how many of
    its rows a device computes at once (None: all). `data` says where training rows lie: on the device, in
    the table's files, or behind a DataLoader for comparison. `compile` is torch.compile, off because on the
    CPU compiling takes longer than it saves. `model_parallel` is over how many devices one
    copy of the network is cut by tp, pp and their hybrids (None: all, or 2 in a hybrid).
    `checkpoint_minutes` is the time between two checkpoints within an epoch; an epoch ends with one if the
    last is 10 seconds old. A rank without progress for `rank_timeout_s` seconds counts as hung; after a lost
    rank training starts again from its checkpoint, `max_restarts` times.
    """

    architecture: Architecture = "tabm"
    hidden: tuple[Count, ...] | None = None
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    members: Count | None = None
    num_bins: Annotated[int, Field(ge=1)] | None = None
    embedding_dim: Count | None = None
    epochs: Count | None = None
    batch_size: Count | None = None
    micro_batch_size: Count | None = None
    learning_rate: Positive | None = None
    schedule: Schedule | None = None
    weight_decay: NotNegative | None = None
    patience: Annotated[int, Field(ge=0)] | None = None
    precision: Precision = "auto"
    activation_checkpointing: bool = False
    compile: bool = False
    data: Literal["auto", "resident", "stream", "dataloader"] = "auto"
    dataloader: DataLoaderConfig = DataLoaderConfig()
    strategy: Strategy = "auto"
    model_parallel: Count | None = None
    checkpoint_minutes: Positive = 10.0
    rank_timeout_s: Annotated[float, Field(ge=5.0)] = 40.0
    max_restarts: Annotated[int, Field(ge=0)] = 2


class RunConfig(Section):
    """One run. `repeats` None: one per lane. `preset` None: fast on CPU, balanced on GPU.

    `models` are what is trained; with one alone there is nothing to compare, and no blend. A worker that for
    `hang_after_s` seconds neither reports, computes, reads nor writes counts as hung; 0: none ever does.
    """

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 7
    repeats: Count | None = None
    preset: Preset | None = None
    models: Annotated[tuple[Model, ...], Field(min_length=1)] = ("trees", "neural")
    hang_after_s: NotNegative = 60.0
    data: DataConfig = DataConfig()
    split: SplitConfig = SplitConfig()
    devices: DevicesConfig = DevicesConfig()
    cluster: ClusterConfig = ClusterConfig()
    slurm: SlurmConfig = SlurmConfig()
    trees: TreesConfig = TreesConfig()
    neural: NeuralConfig = NeuralConfig()


def dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys; a mapping whose keys are the user's stays one value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and name not in _OWN_KEYS:
            flat.update(dotted(value, f"{name}."))
        else:
            flat[name] = value
    return flat


_OWN_KEYS = ("data.roles", "cluster.spark")
