"""How the user's columns become those of an exported file: JSON that each file carries, as ``encoding``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sparkgpu.core.table.schema import OTHER_LEVEL, Feature, TableSchema
from sparkgpu.predict.output import typed
from sparkgpu.prepare.target_means import LevelMeans

if TYPE_CHECKING:
    from sparkgpu.h2o.mojo_file import Description

MeansOf = Mapping[str, tuple[list[str], list[float]]]
"""By the name of a feature of mean targets: the levels, and the mean of each, the last of any other."""


def means_of(means: Mapping[str, LevelMeans]) -> MeansOf:
    found = (one.by_level() for one in means.values())
    return {name: (levels, values) for levels, columns in found for name, values in columns.items()}


def encoding(schema: TableSchema, means: MeansOf, described: Description | None = None) -> str:
    """The features in the file's order, each with its `column` and the `part` of it that it is.

    A category has `words`, in the order of their codes. A mean target has `words` and `means`, and the sum or
    difference of two columns (`part` begins with + or −) has both as `pair`. In H2O's own
    trees (`described`) the features of `one_hot` have a column for each word and one for missing, and if
    `sparse` is true, a 0 counts as missing.
    """
    features = {feature.name: feature for feature in schema.features}
    found = [
        _described(features[name], means, described.domains.get(name, ()) if described else None)
        for name in (described.features if described else features)
    ]
    for one in found:
        if pair := features[one["name"]].pair:
            one["pair"] = [features[name].source for name in pair]
    h2o = (
        {"one_hot": described.features[: described.num_one_hot], "sparse": described.sparse}
        if described
        else {}
    )
    return json.dumps({"features": found, **h2o})


def _described(feature: Feature, means: MeansOf, domain: tuple[str, ...] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": feature.name, "column": feature.source, "part": feature.part}
    if feature.name in means:
        levels, values = means[feature.name]
        return {**found, "words": typed(levels, feature.type), "means": values}
    words = typed_words(feature.levels if domain is None else domain, feature.type)
    return {**found, "words": words} if feature.levels else found


def typed_words(levels: Iterable[str], kind: str | None) -> list[Any]:
    """Levels with the type of the user's column; `OTHER_LEVEL` stays."""
    words = [text if text == OTHER_LEVEL else typed([text], kind)[0] for text in levels]
    # A level of 1.0 is "1"; equal as a number, it is written as the level is.
    return [int(word) if str(word) == f"{text}.0" else word for word, text in zip(words, levels, strict=True)]
