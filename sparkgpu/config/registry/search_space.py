"""The values that a search for settings tries: ranges and choices by key, data of an engine or a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from `low` to `high`: drawn evenly, or evenly in their logarithm; `whole` means integers."""

    low: float
    high: float
    log: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Choice:
    """One of several values, none of which is nearer to another."""

    values: tuple[float | str | tuple[int, ...], ...]


SearchSpace = Mapping[str, Range | Choice]
"""By the keys of ``[trees]`` or ``[neural]``."""
