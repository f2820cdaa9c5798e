"""Which columns of the prepared table belong to which of the user's columns.

A user's column is shuffled as a whole: a category with its mean targets, a timestamp with all its parts, a
text with its estimates and topics; what is made of two columns follows from them. What is drawn is one
feature: a category, again with its mean targets, one part of a timestamp, or the first estimate of a text,
with all that goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkgpu.core.table.schema import Feature, TableSchema


@dataclass(frozen=True, kw_only=True)
class Places:
    """Columns of `Rows`: places in `numeric_NF` and in `codes_NK`."""

    numeric: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()

    def __add__(self, other: Places) -> Places:
        return Places(numeric=self.numeric + other.numeric, codes=self.codes + other.codes)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One of the user's columns, and the features made of it that can be drawn, with their places.

    The first place of a feature is its own; the others hold the mean targets of its levels.
    """

    name: str
    features: tuple[tuple[Feature, Places], ...]

    @property
    def places(self) -> Places:
        return sum((places for _, places in self.features), Places())


def user_columns(schema: TableSchema) -> tuple[Column, ...]:
    """The user's columns in the order of the schema's features."""
    numeric = {feature.name: place for place, feature in enumerate(schema.numeric)}
    coded = {feature.name: place for place, feature in enumerate(schema.categorical)}
    found: dict[str, list[tuple[Feature, Places]]] = {}
    for feature in schema.features:
        if feature.is_derived:
            continue
        if feature.is_text:
            if feature.source in found:
                continue
            own = tuple(numeric[one.name] for one in schema.numeric if one.source == feature.source)
            places = Places(numeric=own)
        elif feature.kind == "numeric":
            places = Places(numeric=(numeric[feature.name],))
        else:
            means = tuple(numeric[one.name] for one in schema.numeric if one.means_of == feature.name)
            places = Places(codes=(coded[feature.name],), numeric=means)
        found.setdefault(feature.source, []).append((feature, places))
    return tuple(Column(name=name, features=tuple(own)) for name, own in found.items())
