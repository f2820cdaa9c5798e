"""The interface of every engine, an adapter of a learner, and its input.

A worker makes an engine once and lets it run its trials one after the other. It computes no metric: one
scorer does that, from the predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from sparkgpu.core.config.context_keys import ContextParameters
from sparkgpu.core.config.parameters import NeuralParameters, TreesParameters
from sparkgpu.core.config.registry.engines import ENGINES, EngineEntry
from sparkgpu.core.errors import ConfigError, DeviceError, SparkgpuError, TrialError, described
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.paths import RunPaths, TrialPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import TableSchema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from py4j.java_gateway import JVMView
    from pyspark.sql import SparkSession

    from sparkgpu.core.table.rows import Rows


ParametersT = TypeVar("ParametersT", TreesParameters, NeuralParameters, ContextParameters)


Watch = Callable[[int, float], None]
"""Told the loss on the validation rows after some steps, it may raise `PrunedError`."""


class PrunedError(TrialError):
    """A search gives up a setting in the middle of its training."""


@dataclass(frozen=True, kw_only=True)
class Trial(Generic[ParametersT]):
    """One trial: what to train, on which table, with which parameters, and where its files go.

    The `schema` is that of the table of `run`; of several targets, that of all of them or of the trial's own.
    `scratch` is a temporary folder of the run, which all machines of a cluster see. `cores_are_free` tells
    whether the lane's other branch no longer needs its cores. `beside_bytes` are what the trees take of the
    same GPU at the same time, and `may_wait` tells whether somebody marks their end: the supervisor of one
    machine does, that of a Spark cluster does not. If the run has a time limit, it has to be done at `until`,
    by `time.monotonic`. In a search, `watch` is told the loss on the validation rows after some steps,
    and may raise `PrunedError`.
    """

    spec: TrialSpec
    parameters: ParametersT
    schema: TableSchema
    run: RunPaths
    lane: LanePlan
    events: EventWriter
    scratch: Path
    cores_are_free: Callable[[], bool] = lambda: False
    beside_bytes: int = 0
    may_wait: bool = False
    until: float | None = None
    watch: Watch | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def paths(self) -> TrialPaths:
        return self.run.trial(self.spec.own_name)


TreesTrial = Trial[TreesParameters]
NeuralTrial = Trial[NeuralParameters]
ContextTrial = Trial[ContextParameters]


class Ranks:
    """The processes that train one model together, seen from one of them. These are only one."""

    rank, count = 0, 1

    def summed(self, values_K: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sums over all ranks, which wait for each other here."""
        return values_K

    def told(self, flag: bool) -> bool:
        """The `flag` of the first rank, on all of them."""
        return flag


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The surroundings of an engine: `java` where it asks for H2O, and the `ranks` if it spreads over some.

    `java` is py4j's view of the JVM that H2O is in, or on a cluster that of its driver, of which H2O is a
    cloud of several nodes.
    """

    session: SparkSession | None = None
    java: JVMView | None = None
    on_cluster: bool = False
    ranks: Ranks = field(default_factory=Ranks)


class Model(Protocol):
    """A fitted model, loaded from a trial's folder."""

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Values (N,), or probabilities (N, C) in the order of the schema's classes."""


class Engine(Protocol[ParametersT]):
    """An engine; a worker makes it as ``Class(platform)``. `core.config.registry.engines` has its entry."""

    def __init__(self, platform: Platform) -> None: ...

    def run(self, trial: Trial[ParametersT]) -> FitRecord:
        """Train, predict the rows of valid and test, and write predictions, learning curve and model.

        Raises `DeviceError` if a GPU was asked for and not used, or if the learner is not installed, and
        `TrialError` if the learner refuses or fails.
        """

    @staticmethod
    def load(folder: Path, schema: TableSchema) -> Model:
        """The model that `run` wrote to a trial's folder, ready for use on the CPU."""


def make_engine(name: str, platform: Platform) -> Any:
    """The `Engine` called `name`. Raises `DeviceError` if its package is not installed."""
    entry = ENGINES.find(name)
    return _imported(entry, entry.load)(platform)


def load_fitted(engine: str, folder: Path, schema: TableSchema) -> Model:
    """The model that the engine called `engine` wrote to a trial's folder.

    Raises `DeviceError` if the engine's package is not installed, and `ConfigError` if the model is damaged.
    """
    entry = ENGINES.find(engine)
    TrialPaths(root=folder).check("model.*")  # a library may end the process over a damaged file
    found = _imported(entry, entry.fitted or entry.load)
    load: Callable[[Path, TableSchema], Model] = found if entry.fitted else found.load
    try:
        return load(folder, schema)
    except SparkgpuError:
        raise
    except Exception as error:  # each library has its own
        raise ConfigError(
            f"{folder}: its model cannot be loaded ({described(error)['message']}). It is damaged, or of "
            "another version of sparkgpu; start a new run, or use that version."
        ) from error


def _imported(entry: EngineEntry, place: str) -> Any:
    try:
        return entry.loaded_from(place)
    except ImportError as error:
        what = f"Run `pip install '{entry.package}'`." if entry.package else "Install what it needs."
        raise DeviceError(
            f"the engine {entry.name!r}: its package cannot be imported ({error}). {what}"
        ) from None
