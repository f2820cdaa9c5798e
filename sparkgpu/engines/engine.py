"""What every engine is, and what it gets: one protocol, one record.

An engine is an adapter of a learner. A worker makes it once and has it run its trials one after the other; of
each it leaves predictions, learning curve and model in the trial's folder and returns a record. It computes
no metric: one scorer does, from the predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from sparkgpu.config.engines import ENGINES
from sparkgpu.config.parameters import NeuralParameters, TreesParameters
from sparkgpu.errors import DeviceError
from sparkgpu.plan.plan import LanePlan, TrialSpec
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.paths import RunPaths, TrialPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.schema import TableSchema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from sparkgpu.table.rows import Rows


ParametersT = TypeVar("ParametersT", TreesParameters, NeuralParameters)


@dataclass(frozen=True, kw_only=True)
class Trial(Generic[ParametersT]):
    """One trial: what is to be trained, on which table, with what, and where its files go.

    `parameters` are those of the engine's branch, resolved. `scratch` is a folder of the run's own, which on
    a cluster all machines see. `cores_are_free` says whether the lane's other branch needs no core any more.
    """

    spec: TrialSpec
    parameters: ParametersT
    schema: TableSchema
    run: RunPaths
    lane: LanePlan
    events: EventWriter
    scratch: Path
    cores_are_free: Callable[[], bool] = lambda: False

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def paths(self) -> TrialPaths:
        """The trial's own folder."""
        return self.run.trial(self.spec.name)


TreesTrial = Trial[TreesParameters]
NeuralTrial = Trial[NeuralParameters]


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What stands around an engine: a Spark session where its entry asks for H2O or it trains on a cluster.

    `num_workers` is over how many slots of a cluster one model is spread.
    """

    session: SparkSession | None = None
    on_cluster: bool = False
    num_workers: int = 1


class Model(Protocol):
    """A fitted model, loaded from a trial's folder."""

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Values (N,), or probabilities (N, C) in the order of the schema's classes."""


class Engine(Protocol[ParametersT]):
    """An engine, made by a worker as ``Class(platform)``; its entry stands in `sparkgpu.config.engines`."""

    def __init__(self, platform: Platform) -> None: ...

    def run(self, trial: Trial[ParametersT]) -> FitRecord:
        """Train, predict the rows of valid and test, and leave the trial's files.

        Raises `DeviceError` when a GPU was asked for and not used, or the learner is not installed;
        `TrialError` when it refuses or fails.
        """

    @staticmethod
    def load(folder: Path, schema: TableSchema) -> Model:
        """The model that `run` left in a trial's folder, ready to be applied on the CPU."""


class ClusterEngine(Engine[ParametersT], Protocol[ParametersT]):
    """An engine in the driver of a Spark application, which trains one model over the executors."""

    def gets_on(self) -> bool:
        """Whether work was done since this was asked before that Spark's own figures do not show."""


def make_engine(name: str, platform: Platform) -> Engine[Any]:
    """The engine called `name`, for one machine. Raises `DeviceError` where its package is not installed."""
    entry = ENGINES.find(name)
    try:
        kind: type[Engine[Any]] = entry.loaded()
    except ImportError as error:
        raise _not_installed(name, entry.package, error, "") from None
    return kind(platform)


def make_cluster_engine(name: str, platform: Platform) -> ClusterEngine[Any]:
    """The engine called `name`, over the executors of a cluster. Raises as `make_engine` does."""
    entry = ENGINES.find(name)
    assert entry.on_cluster is not None  # refused by the plan
    try:
        kind: type[ClusterEngine[Any]] = entry.loaded_from(entry.on_cluster)
    except ImportError as error:
        raise _not_installed(name, entry.package, error, " here and on the executors") from None
    return kind(platform)


def _not_installed(name: str, package: str | None, error: ImportError, where: str) -> DeviceError:
    what = f"Run `pip install '{package}'`{where}." if package else "Install what it needs."
    return DeviceError(f"trees.engine = {name!r}: its package cannot be imported ({error}). {what}")
