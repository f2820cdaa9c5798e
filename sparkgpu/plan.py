"""Who does what where: lanes, their share of the machine, and the trials on each; and every automatic choice.

`make_plan` is a pure function of the configuration and of what the machine has; `resolve_parameters` fills
what the configuration left open once the task and the number of rows are known. Both are the same in every
process, so the parent and the workers never have to exchange them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from sparkgpu.artifacts import RunPaths
from sparkgpu.config import Architecture, NeuralConfig, Preset, RunConfig, Strategy, TreesConfig
from sparkgpu.devices import Device, Machine
from sparkgpu.errors import DeviceError
from sparkgpu.events import Branch
from sparkgpu.placement import GANG_STRATEGIES, check_precision, check_strategy, choose_strategy
from sparkgpu.schema import Record, Task

GIB = 2**30

_BEST_REPEATS = 3

SectionT = TypeVar("SectionT", TreesConfig, NeuralConfig)


class LanePlan(Record):
    """One lane: a device and its share of the machine.

    `threads` are its cores (Spark and H2O use them all); `tree_threads` and `neural_threads` are what the
    two branches train with at the same time. On the CPU they share the cores out: two OpenMP teams on the
    same cores wait for each other at every barrier and take several times as long. `heap_bytes` is the
    JVM's heap. `port_base` opens a block of ports of the lane's own.
    """

    index: int
    device: str
    cuda_visible_devices: str | None
    device_name: str
    threads: int
    tree_threads: int
    neural_threads: int
    heap_bytes: int
    port_base: int


class TrialSpec(Record):
    """One engine with one seed and one fold, on one lane or, as a gang, on the devices of several.

    `lane` runs it, `gang` are the lanes whose devices it takes, on each of `nodes` machines.
    """

    name: str
    model: Branch
    engine: str
    seed: int
    fold: int | None
    lane: int
    gang: tuple[int, ...]
    strategy: Strategy = "single"
    nodes: int = 1

    @property
    def num_ranks(self) -> int:
        """Processes that train it together, where its strategy takes several."""
        return self.nodes * len(self.gang)


class Plan(Record):
    """``plan.json``. `reasons` says in words why each automatic choice was made."""

    preset: Preset
    lanes: tuple[LanePlan, ...]
    trials: tuple[TrialSpec, ...]
    reasons: dict[str, str]

    @property
    def strategy(self) -> Strategy:
        """How each network is spread."""
        return next((trial.strategy for trial in self.trials if trial.model == "neural"), "single")

    def visible_devices(self, lane: int, branch: Branch) -> str:
        """What CUDA may see in a lane's worker: the lane's device, or all of its gang's, in order."""
        lanes = sorted({member for trial in self.of(lane, branch) for member in trial.gang} | {lane})
        return ",".join(self.lanes[member].cuda_visible_devices or "" for member in lanes).strip(",")

    def of(self, lane: int, branch: Branch) -> tuple[TrialSpec, ...]:
        """The trials of one branch of one lane, in the order they run."""
        return tuple(trial for trial in self.trials if trial.lane == lane and trial.model == branch)


def prepares_table(paths: RunPaths, lane: int, branch: Branch) -> bool:
    """Whether this worker makes the table: the first lane's trees, unless a stopped run had made it."""
    return branch == "trees" and lane == 0 and not paths.schema.exists()


def make_plan(
    config: RunConfig, machine: Machine, devices: tuple[Device, ...], ports: tuple[int, ...]
) -> Plan:
    """Lay the run out over `devices`, one lane each.

    `ports` holds one base per device. Raises `DeviceError` when the machine cannot carry that many lanes.
    """
    reasons: dict[str, str] = {}
    on_gpu = devices[0].kind == "cuda"
    if config.devices.gpus is None and config.devices.cpu_lanes is None:
        reasons["devices"] = "every visible GPU" if on_gpu else "the CPU, since no GPU is visible here"
    preset: Preset = config.preset or ("balanced" if on_gpu else "fast")
    if config.preset is None:
        reasons["preset"] = f"{preset}, the default on {'GPUs' if on_gpu else 'CPU'}"
    threads = max(1, machine.cores // len(devices))
    heap = _heap_bytes(machine, len(devices))
    reasons["memory"] = (
        f"{heap / GIB:.1f} GiB of Java heap a lane: a quarter of the lane's share of "
        f"{machine.memory_bytes / GIB:.0f} GiB"
    )
    alone = on_gpu or len(set(config.models)) == 1  # no branch has to share the cores
    lanes = tuple(
        LanePlan(
            index=index,
            device=device.name,
            cuda_visible_devices=device.visible,
            device_name=device.title,
            threads=threads,
            tree_threads=threads if alone else max(1, threads - threads // 2),
            neural_threads=threads if alone else max(1, threads // 2),
            heap_bytes=heap,
            port_base=port,
        )
        for index, (device, port) in enumerate(zip(devices, ports, strict=True))
    )
    neural = _fill(config.neural, _neural_defaults(config.neural, preset, devices[0].name))
    nodes = config.cluster.nodes
    strategy, reason = choose_strategy(
        neural,
        num_devices=nodes * len(lanes),
        nodes=nodes,
        trials=(config.repeats or len(lanes)) * (config.split.folds or 1),
        memory_bytes=min((gpu.memory_bytes for gpu in machine.gpus), default=None) if on_gpu else None,
    )
    if config.neural.strategy == "auto":
        reasons["strategy"] = reason
    check_strategy(neural, strategy, nodes * len(lanes), nodes=nodes)
    check_precision(config.neural, devices[0].name)
    repeats, reason = _repeats(config, preset, strategy, len(lanes))
    if config.repeats is None:
        reasons["repeats"] = reason
    trials = _trials(config, repeats, len(lanes), strategy, nodes)
    return Plan(preset=preset, lanes=lanes, trials=trials, reasons=reasons)


def _repeats(config: RunConfig, preset: Preset, strategy: Strategy, lanes: int) -> tuple[int, str]:
    """How many seeds there are, and why when that was left open."""
    if config.repeats is not None:
        return config.repeats, "asked for"
    if strategy in GANG_STRATEGIES:
        return 1, "1: all devices train one network"
    if preset == "best" and lanes < _BEST_REPEATS:
        return _BEST_REPEATS, f"{_BEST_REPEATS}, whose predictions the blend averages, by the best preset"
    return lanes, f"{lanes}, one for each lane"


def _heap_bytes(machine: Machine, lanes: int) -> int:
    # XGBoost and torch hold their data outside the Java heap, so it gets the smaller part of the share.
    heap = min(machine.memory_bytes // 4 // lanes, 64 * GIB)
    if heap < 0.75 * GIB:
        raise DeviceError(
            f"{lanes} lanes: {machine.memory_bytes / GIB:.1f} GiB of memory leave {heap / GIB:.2f} GiB of "
            "Java heap for each, and H2O needs at least 0.75; ask for fewer lanes."
        )
    return heap


def _trials(
    config: RunConfig, repeats: int, lanes: int, strategy: Strategy, nodes: int
) -> tuple[TrialSpec, ...]:
    folds: tuple[int | None, ...] = tuple(range(config.split.folds)) if config.split.folds else (None,)
    trials = []
    for position, (repeat, fold) in enumerate((r, f) for r in range(repeats) for f in folds):
        seed = config.seed + repeat
        suffix = f"s{seed}" if fold is None else f"s{seed}-f{fold}"
        for model, engine in (("trees", config.trees.engine), ("neural", "torch")):
            if model not in config.models:
                continue
            is_gang = model == "neural" and strategy in GANG_STRATEGIES
            lane = 0 if is_gang else position % lanes
            trials.append(
                TrialSpec.model_validate(
                    {
                        "name": f"{model}-{suffix}",
                        "model": model,
                        "engine": engine,
                        "seed": seed,
                        "fold": fold,
                        "lane": lane,
                        "gang": tuple(range(lanes)) if is_gang else (lane,),
                        "strategy": strategy if model == "neural" else "single",
                        "nodes": nodes if is_gang else 1,
                    }
                )
            )
    return tuple(trials)


# Tree settings per task: the meta-tuned defaults for XGBoost of Holzmüller et al., "Better by Default"
# (NeurIPS 2024; pytabkit's XGB_TD), with the number of trees and their step set by the preset.
_TREES: dict[Literal["classes", "regression"], dict[str, float]] = {
    "classes": {
        "max_depth": 6, "min_rows": 5e-6, "sample_rate": 0.65, "col_sample_rate": 0.9,
        "col_sample_rate_per_tree": 1.0, "reg_lambda": 0.0, "reg_alpha": 0.0, "max_bins": 256,
    },
    "regression": {
        "max_depth": 9, "min_rows": 2.0, "sample_rate": 0.7, "col_sample_rate": 1.0,
        "col_sample_rate_per_tree": 1.0, "reg_lambda": 0.0, "reg_alpha": 0.0, "max_bins": 256,
    },
}  # fmt: skip
_TREE_PRESETS: dict[Preset, dict[str, float]] = {
    "fast": {"ntrees": 300, "learn_rate": 0.1, "early_stopping_rounds": 40},
    "balanced": {"ntrees": 1000, "learn_rate": 0.06, "early_stopping_rounds": 100},
    "best": {"ntrees": 4000, "learn_rate": 0.03, "early_stopping_rounds": 300},
}
_Defaults = dict[Architecture, dict[str, float | str | tuple[int, ...]]]
# "best" and, on a GPU, "balanced" are of the size that the TabM paper publishes; on a CPU "balanced" is half
# as wide with half the members, a tenth of the work. "fast" is what two CPU cores train in a minute or so:
# for large tables fewer members and no dropout, since there the network is short of capacity and epochs, not
# of rows (docs/performance.md has the figures).
_NEURAL_PRESETS: dict[Preset, _Defaults] = {
    "fast": {
        "tabm": {
            "hidden": (128, 128), "members": 8, "num_bins": 48, "embedding_dim": 8, "epochs": 30,
            "patience": 5, "dropout": 0.1, "schedule": "cosine",
        },
        "mlp": {"hidden": (256, 256), "epochs": 12, "patience": 3, "dropout": 0.1},
        "realmlp": {"hidden": (256, 256, 256), "epochs": 32, "patience": 32, "dropout": 0.15},
        "resnet": {"hidden": (128, 128), "epochs": 12, "patience": 3, "dropout": 0.1},
    },
    "balanced": {
        "tabm": {
            "hidden": (512, 512), "members": 32, "num_bins": 48, "embedding_dim": 16, "epochs": 200,
            "patience": 16, "dropout": 0.1,
        },
        "mlp": {"hidden": (512, 512, 512), "epochs": 100, "patience": 10, "dropout": 0.1},
        "realmlp": {"hidden": (256, 256, 256), "epochs": 256, "patience": 256, "dropout": 0.15},
        "resnet": {"hidden": (256, 256, 256), "epochs": 100, "patience": 10, "dropout": 0.1},
    },
    "best": {
        "tabm": {
            "hidden": (512, 512), "members": 32, "num_bins": 48, "embedding_dim": 16, "epochs": 400,
            "patience": 32, "dropout": 0.1,
        },
        "mlp": {"hidden": (512, 512, 512), "epochs": 300, "patience": 30, "dropout": 0.15},
        "realmlp": {"hidden": (256, 256, 256), "epochs": 256, "patience": 256, "dropout": 0.15},
        "resnet": {"hidden": (256, 256, 256, 256), "epochs": 300, "patience": 30, "dropout": 0.15},
    },
}  # fmt: skip
_FAST_ON_MANY_ROWS: _Defaults = {
    "tabm": {
        "hidden": (256, 256), "members": 2, "num_bins": 32, "embedding_dim": 4, "epochs": 8, "dropout": 0.0,
    },
}  # fmt: skip
_MANY_ROWS = 100_000
_BALANCED_ON_CPU: _Defaults = {"tabm": {"hidden": (256, 256), "members": 16}}
_LEARNING: _Defaults = {
    "tabm": {"learning_rate": 2e-3, "weight_decay": 3e-4, "schedule": "constant"},
    "realmlp": {"learning_rate": 0.04, "weight_decay": 2e-2, "schedule": "coslog4", "batch_size": 256},
    "mlp": {"learning_rate": 1e-3, "weight_decay": 1e-4, "schedule": "constant"},
    "resnet": {"learning_rate": 1e-3, "weight_decay": 1e-4, "schedule": "constant"},
}
# Batch size by training rows, as the TabM paper sets it (Gorishniy et al., ICLR 2025).
_BATCH_SIZES = ((32_000, 256), (108_000, 512))


def resolve_parameters(
    config: RunConfig, *, preset: Preset, strategy: Strategy, task: Task, train_rows: int, device: str
) -> RunConfig:
    """The configuration with every open engine parameter filled in. What the user set is never changed."""
    family: Literal["classes", "regression"] = "regression" if task == "regression" else "classes"
    trees = _fill(config.trees, {**_TREES[family], **_TREE_PRESETS[preset]})
    if trees.tree_method == "auto":
        trees = trees.model_copy(update={"tree_method": "gpu_hist" if device.startswith("cuda") else "hist"})
    batch = next((size for rows, size in _BATCH_SIZES if train_rows < rows), 1024)
    defaults = _neural_defaults(config.neural, preset, device, task=task, train_rows=train_rows)
    neural = _fill(config.neural, defaults)
    neural = _fill(neural, {"batch_size": batch})
    neural = _fill(neural, {"micro_batch_size": neural.batch_size})
    if neural.strategy == "auto":
        neural = neural.model_copy(update={"strategy": strategy})
    data = config.data.model_copy(update={"task": task})
    return config.model_copy(update={"preset": preset, "data": data, "trees": trees, "neural": neural})


def _neural_defaults(
    config: NeuralConfig, preset: Preset, device: str, *, task: Task = "binary", train_rows: int = 0
) -> dict[str, Any]:
    """The network's parameters by architecture, preset and rows; few rows until the table is known."""
    architecture = config.architecture
    found = {**_LEARNING[architecture], **_NEURAL_PRESETS[preset][architecture]}
    if preset == "fast" and train_rows >= _MANY_ROWS:
        found |= _FAST_ON_MANY_ROWS.get(architecture, {})
    if preset == "balanced" and not device.startswith("cuda"):
        found |= _BALANCED_ON_CPU.get(architecture, {})
    if architecture == "realmlp" and task == "regression":
        found["learning_rate"] = 0.2
    return found


def _fill(section: SectionT, values: Mapping[str, Any]) -> SectionT:
    """A copy of `section` with `values` in the places that are still open."""
    return section.model_copy(
        update={key: value for key, value in values.items() if getattr(section, key) is None}
    )
