"""What passes between the process that explains a run and those that hold its models.

G classes or 1, P points of a grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sparkgpu.explain.columns import Places
from sparkgpu.explain.sample import Sample
from sparkgpu.score.rows import FloatArray
from sparkgpu.table.schema import TableSchema


@dataclass(frozen=True, kw_only=True)
class Member:
    """A trial whose model is to be loaded, under the name of its model."""

    name: str
    engine: str
    folder: Path
    temperature: float | None


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a process of models is started with: its models, and the table."""

    members: tuple[Member, ...]
    schema: TableSchema


@dataclass(frozen=True, kw_only=True)
class Shuffle:
    """Shuffle each group of places, with the rest as it is, `rounds` times over; say what each costs.

    The first `rows` rows of the sample are asked. Nothing begins that would not be done at `until`.
    """

    groups: tuple[Places, ...]
    rows: int
    rounds: int
    seed: int
    until: float


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The values of one feature that all rows get, one after the other: for each place, a value a point.

    `numeric` and `codes` hold a place and its values (P,).
    """

    numeric: tuple[tuple[int, NDArray[Any]], ...]
    codes: tuple[tuple[int, NDArray[Any]], ...]
    points: int


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Say what the models predict on average at each point of each grid, for the first `rows` rows."""

    grids: tuple[Grid, ...]
    rows: int
    until: float


Command = Sample | Shuffle | Draw | None
"""The sample comes first, once; None ends the process."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model answers: its metric on the sample, and the seconds it takes for a call and for a row."""

    model: str
    value: float | None
    call_s: float
    row_s: float


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A model cannot be asked, and why."""

    model: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Drop:
    """By how much a model's score is lower with a group shuffled; its place in the order is `group`."""

    model: str
    group: int
    drop: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What a model predicts on average at the points of a grid; its place in the order is `grid`."""

    model: str
    grid: int
    mean_PG: FloatArray


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The command is carried out, or its time is over."""


Answer = Loaded | Refused | Drop | Curve | Ready
