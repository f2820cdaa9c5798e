"""Which columns of the prepared table belong to which of the user's columns.

A user's column is shuffled as a whole: a category with its mean targets, a moment with all its parts. What
is drawn is one feature: a category, again with its mean targets, or one part of a moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sparkgpu.table.schema import TableSchema


@dataclass(frozen=True, kw_only=True)
class Places:
    """Columns of `Rows`: places in `numeric_NF` and in `codes_NK`."""

    numeric: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()

    def __add__(self, other: Places) -> Places:
        return Places(numeric=self.numeric + other.numeric, codes=self.codes + other.codes)


@dataclass(frozen=True, kw_only=True)
class Drawable:
    """A feature whose dependence can be drawn.

    The first place is the feature's own; the others hold the mean targets of its levels.
    """

    title: str
    kind: Literal["numeric", "categorical"]
    places: Places
    levels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Column:
    """One of the user's columns."""

    name: str
    places: Places
    drawables: tuple[Drawable, ...]


def user_columns(schema: TableSchema) -> tuple[Column, ...]:
    """The user's columns in the order of the schema's features."""
    numeric = {feature.name: place for place, feature in enumerate(schema.numeric)}
    coded = {feature.name: place for place, feature in enumerate(schema.categorical)}
    means: dict[str, list[int]] = {}
    for feature in schema.numeric:
        if feature.means_of is not None:
            means.setdefault(feature.means_of, []).append(numeric[feature.name])
    drawables: dict[str, list[Drawable]] = {}
    for feature in schema.features:
        if feature.means_of is not None:
            continue
        if feature.kind == "categorical":
            places = Places(codes=(coded[feature.name],), numeric=tuple(means.get(feature.name, ())))
        else:
            places = Places(numeric=(numeric[feature.name],))
        drawables.setdefault(feature.source, []).append(
            Drawable(title=feature.title, kind=feature.kind, places=places, levels=feature.levels)
        )
    return tuple(
        Column(name=name, places=sum((one.places for one in own), Places()), drawables=tuple(own))
        for name, own in drawables.items()
    )
