"""The features that follow from the roles of columns, in the order of the vector."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from sparkgpu.core.table.schema import Feature, Reading
from sparkgpu.prepare.levels import Levels
from sparkgpu.prepare.roles import ColumnRole, safe_names

_READINGS: Mapping[str, Reading] = {
    "numeric": "number",
    "boolean": "boolean",
    "categorical": "category",
    "timestamp": "timestamp",
}


def features_of(
    roles: Sequence[ColumnRole],
    types: Mapping[str, str],
    levels: Mapping[str, Levels],
    as_they_are: Collection[str] = (),
) -> tuple[Feature, ...]:
    """The features of columns with these roles, in the order of the vector; `types` are Spark's.

    VectorAssembler takes the columns `as_they_are` from the user's table. All others are numbered inside the
    pipeline, since dots and quotes in names break its stages.
    """
    same = Counter(map(str.casefold, types))  # Spark's names may ignore case
    taken = {name for name in as_they_are if re.fullmatch(r"\w+", name) and same[name.casefold()] == 1}
    prefix = "f"
    while any(re.fullmatch(rf"{prefix}\d+(_.*)?", name, re.IGNORECASE) for name in types):
        prefix = f"_{prefix}"
    parts = [(role, part) for role in roles for part in (role.parts if role.role == "timestamp" else (None,))]
    names = safe_names([f"{role.column}_{part}" if part else role.column for role, part in parts])
    return tuple(
        Feature(
            name=name,
            source=role.column,
            part=part,
            kind="categorical" if role.role == "categorical" else "numeric",
            pipeline=role.column if role.column in taken else f"{prefix}{place}",
            levels=levels[role.column].with_other() if role.role == "categorical" else (),
            reading=_READINGS[role.role],
            type=types[role.column],
        )
        for place, (name, (role, part)) in enumerate(zip(names, parts, strict=True))
    )
