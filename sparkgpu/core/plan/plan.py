"""The plan of a run: lanes, their share of the machine, the trials on each, and every automatic choice.

`Plan.resolved` fills the open keys of the configuration when the table is known. It gives the same result in
every process, so the parent and the workers need not exchange it.
"""

from __future__ import annotations

import time

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.parameters import TreesParameters
from sparkgpu.core.config.registry.engines import BRANCHES, ENGINES, Branch
from sparkgpu.core.config.values import Preset
from sparkgpu.core.plan.defaults import Resolved, resolve
from sparkgpu.core.plan.gpu_memory import tree_bytes
from sparkgpu.core.plan.preparation import Context, PreparedBy
from sparkgpu.core.plan.time_limit import planned_s, training_ends
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec, of_first_seed, sharing_time
from sparkgpu.core.rundir.files import Record
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import TableSchema


class LanePlan(Record):
    """One lane: a device and its share of the machine.

    `threads` are its cores (Spark and H2O use all of them). The two branches train at the same time with
    `tree_threads` and `neural_threads`. On the CPU they divide the cores, since two OpenMP teams on the same
    cores wait for each other at every barrier and take several times as long. `heap_bytes` is the JVM's heap
    (0: no lane needs one), `port_base` the first port of the lane's own block; for an executor, Spark or the
    lane's own machine decides both. `memory_bytes` is its share of the memory that the run may use (0: not
    known). Others used `used_bytes` of the device's memory when the run began (of
    devices that train one network, the largest). `context` tells what is in its JVM. `in_turn` means that its
    device takes one process at a time, so the network waits until the trees' process has ended.
    """

    index: int
    device: str
    cuda_visible_devices: str | None
    device_name: str
    threads: int
    tree_threads: int
    neural_threads: int
    heap_bytes: int = 0
    port_base: int = 0
    memory_bytes: int = 0
    used_bytes: int = 0
    in_turn: bool = False
    context: Context = "none"


class Plan(Record):
    """``plan.json``. `reasons` gives the reason of each automatic choice in words.

    On a Spark cluster `master` names the cluster and lanes are executors, which as a `cloud` train each model
    together; `num_ranks` is the number of processes that train a network spread over them, and `h2o_gpus`
    lets an H2O cloud of several nodes use their GPUs. The result of a run with a `time_limit` (in seconds)
    has to be there at `deadline` (by `time.monotonic`, which all processes of a machine share; on a cluster
    in seconds since the epoch); a full report takes the rest of the time. The table is `prepared_by` Spark's
    pipeline, or by Arrow without a JVM.
    """

    preset: Preset
    lanes: tuple[LanePlan, ...]
    trials: tuple[TrialSpec, ...]
    reasons: dict[str, str]
    master: str | None = None
    cloud: bool = False
    prepared_by: PreparedBy = "spark"
    num_ranks: int = 1
    h2o_gpus: bool = False
    time_limit: float | None = None
    deadline: float | None = None

    def training_ends(self, schema: TableSchema) -> float | None:
        """When all trials have to be done, by `time.monotonic`."""
        models = len({(trial.target, trial.model) for trial in self.trials})
        if self.deadline is None:
            return None
        since_epoch_s = time.time() - time.monotonic() if self.master is not None else 0.0
        return training_ends(self.deadline - since_epoch_s, schema, models, len(self.trials))

    def _seconds(self, branch: Branch) -> float | None:
        """The seconds for one training of a branch, if time is limited.

        Networks take all that they are planned for, so all folds have to fit; trees on few rows stop long
        before, and lose by the larger steps of a short plan.
        """
        if self.time_limit is None:
            return None
        planned = sharing_time if branch == "trees" else of_first_seed
        if self.cloud:  # all take turns
            return planned_s(self.time_limit, len(planned(self.trials)))
        per_lane = [len(planned(self.of(lane.index, branch))) for lane in self.lanes]
        return planned_s(self.time_limit, max(per_lane))

    def tree_device(self, engine: str) -> str:
        """Where a tree engine trains: some cannot use GPUs, and H2O cannot in a cloud of several nodes."""
        entry = ENGINES.find(engine)
        in_cloud = self.cloud and len(self.lanes) > 1 and entry.needs_h2o and not self.h2o_gpus
        return self.lanes[0].device if entry.on_gpu and not in_cloud else "cpu"

    def bytes_of_trees(self, network: TrialSpec, resolved: Resolved, schema: TableSchema) -> int:
        """What trees take of a network's GPU at the same time."""
        if network.branch != "neural" or self.cloud:
            return 0
        lanes = [lane for lane in network.gang if not self.lanes[lane].in_turn]
        beside = [resolved.of(model) for model in {t.model for lane in lanes for t in self.of(lane, "trees")}]
        trees = [parameters for parameters in beside if isinstance(parameters, TreesParameters)]
        return max((tree_bytes(schema, parameters) for parameters in trees), default=0)

    @property
    def needs_jvm(self) -> bool:
        return any(lane.context != "none" for lane in self.lanes)

    def devices(self, trial: TrialSpec) -> tuple[str, ...]:
        return tuple(self.lanes[lane].device for lane in trial.gang)

    @property
    def strategy(self) -> str:
        return next((trial.strategy for trial in self.trials if trial.engine == "torch"), "single")

    def visible_devices(self, lane: int, branch: Branch) -> str:
        """The devices that CUDA may see in a lane's worker: the lane's own, or all of its gang, in order."""
        lanes = sorted({member for trial in self.of(lane, branch) for member in trial.gang} | {lane})
        return ",".join(self.lanes[member].cuda_visible_devices or "" for member in lanes).strip(",")

    def resolved(self, config: RunConfig, size: TableSize) -> Resolved:
        """`config` with every open parameter filled in, now that the table is known."""
        return resolve(
            config,
            preset=self.preset,
            strategy=self.strategy,
            size=size,
            device=self.lanes[0].device,
            tree_device=self.tree_device,
            seconds={branch: self._seconds(branch) for branch in BRANCHES},
        )

    def of(self, lane: int, branch: Branch) -> tuple[TrialSpec, ...]:
        """The trials of one branch of one lane, in the order in which they run."""
        return tuple(trial for trial in self.trials if trial.lane == lane and trial.branch == branch)


def prepares_table(paths: RunPaths, lane: int, branch: Branch) -> bool:
    """Whether this worker makes the table."""
    return branch == "trees" and lane == 0 and not paths.schema.exists()
