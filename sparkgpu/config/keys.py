"""The configuration of a run: its sections and keys, with their allowed values and defaults.

`sparkgpu.config.toml` reads and writes it. A value that is left out (None) is chosen later, from the task,
the table and the device (`sparkgpu.plan.plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from sparkgpu.config.registry.engines import ENGINES
from sparkgpu.config.registry.networks import NETWORKS
from sparkgpu.config.registry.strategies import STRATEGIES

Preset = Literal["fast", "balanced", "best"]
Role = Literal["numeric", "categorical", "boolean", "timestamp", "ignore"]
TreeMethod = Literal["auto", "exact", "approx", "hist", "gpu_hist"]
GrowPolicy = Literal["depthwise", "lossguide"]
CategoricalEncoding = Literal["one_hot_internal", "label_encoder", "sort_by_response"]
Precision = Literal["auto", "float32", "tf32", "bfloat16", "float16"]
Schedule = Literal["constant", "cosine", "coslog4"]
Model = Literal["trees", "neural"]

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]


def _tree_engine(name: str) -> str:
    if name == "auto":
        return name
    return ENGINES.find(name, lambda entry: entry.branch == "trees").name


def _known_or_auto(name: str) -> str:
    return name if name == "auto" else STRATEGIES.find(name).name


def _ours(*names: str) -> WithJsonSchema:
    """For editors: our own names to choose from, and any other name, which a package may add."""
    return WithJsonSchema({"anyOf": [{"enum": list(names)}, {"type": "string"}]})


AUTO_ENGINE = "h2o-xgboost"
TreeEngine = Annotated[
    str,
    AfterValidator(_tree_engine),
    _ours("auto", *(entry.name for entry in ENGINES.own() if entry.branch == "trees")),
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
    """GPUs in the spellings of a file or of ``--set``: ``[0, 1]``, ``"0,1"``, ``0`` or ``"all"``."""
    if value is None or (isinstance(value, str) and value.strip() == "all"):
        return value and "all"
    names = value.split(",") if isinstance(value, str) else value if isinstance(value, tuple) else (value,)
    if any(isinstance(name, bool) or not isinstance(name, (int, str)) for name in names):
        raise ValueError('give "all", or a list of indices or UUIDs such as [0, 1]')
    return tuple(text for name in names if (text := str(name).strip()))


def _time_limit(value: Any) -> Any:
    """A time limit in Slurm's spelling, also if TOML read it as a time of day (``04:00:00``) or a number."""
    if isinstance(value, time):
        return value.isoformat()
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _spark_settings(value: Any) -> Any:
    """Spark settings by their full names, from TOML's dotted keys (``spark.executor.memory = "4g"``)."""
    if not isinstance(value, Mapping):
        return value
    named = [(name.removeprefix("spark."), item) for name, item in dotted(value).items()]
    if not all(isinstance(item, (str, bool, int, float)) for _, item in named):
        raise ValueError("each Spark setting must be a text, a number, true or false")
    return {
        f"spark.{name}": str(item).lower() if isinstance(item, bool) else str(item) for name, item in named
    }


class Section(BaseModel):
    """Base of the sections: immutable; refuses unknown keys and values of a wrong type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DataConfig(Section):
    """``[data]``. `source` None means the built-in demo; `roles` maps columns to roles.

    A column with more than `max_categories` levels keeps that many, and the rarer ones become one; with
    `target_means`, if most rows lose their level, the mean target of each level is a feature as well.
    """

    source: str | None = None
    target: str | None = None
    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    ignore: tuple[str, ...] = ()
    weight: str | None = None
    class_weights: Literal["none", "balanced"] = "none"
    roles: dict[str, Role] = {}
    max_categories: Count = 1000
    target_means: bool = True


class SplitConfig(Section):
    """``[split]``. `test` and `valid` are shares of all usable rows; `folds` asks for cross-validation."""

    kind: Literal["random", "time", "group", "column"] = "random"
    column: str | None = None
    test: Share = 0.15
    valid: Share = 0.15
    folds: Annotated[int, Field(ge=2, le=100)] | None = None


class DevicesConfig(Section):
    """``[devices]``. If both are None: every visible GPU, or one CPU lane if there is none."""

    gpus: Annotated[Literal["all"] | tuple[str, ...] | None, BeforeValidator(_gpu_names)] = None
    cpu_lanes: Count | None = None


class ClusterConfig(Section):
    """``[cluster]``: runs on more than one machine.

    `master` is a Spark master (``spark://host:7077``, ``yarn``, ``k8s://...``; under spark-submit that of the
    command), and `spark` are Spark settings for it. `lanes` chooses the use of executors: one H2O cloud and
    one gang of ranks over all of them, or one lane on each. `executors` is the number to wait for (None:
    those that come within seconds).

    `nodes` is the number of machines for one network, whose ranks a launcher starts
    (`sparkgpu.host.rank_command`).
    `interface` names the network interface between them, `infiniband` tells whether NCCL may use InfiniBand,
    and `p2p_level` is NCCL's limit for the distance of two GPUs that communicate without the host's memory.
    None leaves the choice to NCCL and gloo.

    `h2o_gpus` throws a switch that H2O's source reads: its trees may use GPUs in a cloud of several nodes.
    Nobody has proven that it works; a trial whose trees did not use the GPU fails.
    """

    master: str | None = None
    spark: Annotated[dict[str, str], BeforeValidator(_spark_settings)] = {}
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
    time: Annotated[str | None, BeforeValidator(_time_limit)] = None
    cpus_per_node: Count | None = None
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] | None = None
    notice_s: Count = 180


class TreesConfig(Section):
    """``[trees]``, with H2O's names. `tree_method="gpu_hist"` means hist on the lane's GPU.

    `max_depth` 0 means no limit, as in the engines' documentation. `engine` "auto" is H2O's XGBoost; on a GPU
    where that does not train it is the package xgboost, if that is installed with CUDA.
    """

    engine: TreeEngine = "auto"
    ntrees: Count | None = None
    grow_policy: GrowPolicy | None = None
    max_depth: Annotated[int, Field(ge=0)] | None = None
    max_leaves: Annotated[int, Field(ge=0)] | None = None
    categorical_encoding: CategoricalEncoding | None = None
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

    @property
    def engine_name(self) -> str:
        """The engine, or the one with which "auto" begins."""
        return AUTO_ENGINE if self.engine == "auto" else self.engine


class DataLoaderConfig(Section):
    """``[neural.dataloader]``, with torch's names."""

    num_workers: Annotated[int, Field(ge=0)] = 0
    pin_memory: bool = True
    persistent_workers: bool = True
    prefetch_factor: Count = 2


class NeuralConfig(Section):
    """``[neural]``.

    `hidden` are the widths of the blocks. For tabm, `members` is the number of predictions per row (k in its
    paper); `num_bins` and `embedding_dim` set its piecewise-linear embeddings of numbers; its hidden matrices
    learn by Muon at `muon_learning_rate` (0: by AdamW like the rest). `schedule` is how the learning rates
    change over `epochs`; `patience` is the number of epochs without gain before early
    stopping (0: none). `batch_size` is that of a whole step, under every strategy; a device computes
    `micro_batch_size` rows of it at once (None: all). `data` is the place of the training rows: on the
    device, in the table's files, or behind a DataLoader for comparison. `compile` is torch.compile; it is off
    because on the CPU compiling takes longer than it saves. With tp, pp and their hybrids, one copy of the
    network is cut over `model_parallel` devices (None: all, or 2 in a hybrid). `checkpoint_minutes` is the
    time between two checkpoints within an epoch; an epoch ends with a checkpoint if the last one is 10
    seconds old. A rank without progress for `rank_timeout_s` seconds counts as hung. After a lost rank,
    training starts again from its checkpoint, at most `max_restarts` times.
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
    muon_learning_rate: NotNegative | None = None
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
    """One run. `repeats` None means one per lane, `preset` None means fast on CPU and balanced on GPU.

    `models` are the models to train; with only one there is no comparison and no blend. A worker that neither
    reports, computes, reads nor writes for `hang_after_s` seconds counts as hung; 0 turns this off.
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
    """Nested mappings as dotted keys; a mapping with the user's own keys stays one value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and name not in _OWN_KEYS:
            flat.update(dotted(value, f"{name}."))
        else:
            flat[name] = value
    return flat


_OWN_KEYS = ("data.roles", "cluster.spark")
