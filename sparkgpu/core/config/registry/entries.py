"""Registries: the engines, networks and strategies that a configuration can name, and where their code is.

An entry is data, light enough for every process; only the process that uses its code imports it. Other
packages add entries through entry points in a registry's group; each entry point names an entry object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from sparkgpu.core.words import nearest


@dataclass(frozen=True, kw_only=True)
class Entry:
    """`name` is the name in the configuration, `load` the code as ``package.module:object``."""

    name: str
    load: str

    def loaded(self) -> Any:
        """The object that `load` names. Raises `ImportError` if its module cannot be imported."""
        return self.loaded_from(self.load)

    @staticmethod
    def loaded_from(place: str) -> Any:
        module, _, name = place.partition(":")
        return getattr(import_module(module), name)


EntryT = TypeVar("EntryT", bound=Entry)


class Registry(Generic[EntryT]):
    """Our own entries, then those of installed packages under the entry point group `group`."""

    def __init__(self, group: str, kind: type[EntryT], own: Iterable[EntryT]) -> None:
        self._group = group
        self._kind = kind
        self._own = {entry.name: entry for entry in own}

    def own(self) -> tuple[EntryT, ...]:
        return tuple(self._own.values())

    def names(self) -> list[str]:
        return [*self._own, *self._points]

    def all(self) -> Iterator[EntryT]:
        return (self.find(name) for name in self.names())

    def find(self, name: str, where: Callable[[EntryT], bool] = lambda entry: True) -> EntryT:
        """The entry called `name`, if `where` holds for it.

        Raises `ValueError` with the available names if there is none.
        """
        entry = self._installed(name)
        if entry is None or not where(entry):
            names = [entry.name for entry in self.all() if where(entry)]
            raise ValueError(f"choose one of {', '.join(names)}.{nearest(name, names)}".removesuffix("."))
        return entry

    def _installed(self, name: str) -> EntryT | None:
        if name in self._own:  # without searching the installed packages
            return self._own[name]
        if name not in self._points:
            return None
        entry = self._points[name].load()
        if not isinstance(entry, self._kind) or entry.name != name:
            raise ValueError(
                f"the entry point {name!r} of {self._group} ({self._points[name].value}) is not a "
                f"{self._kind.__name__} of that name"
            )
        return entry

    @cached_property
    def _points(self) -> Mapping[str, EntryPoint]:
        """Searched once: it takes some milliseconds, and a metric is looked up for every sample of rows."""
        return {point.name: point for point in entry_points(group=self._group)}


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
