"""What ``[rules]`` means for the features of a table: their directions, and the groups in which they meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkgpu.core.config.rule_keys import RulesConfig
from sparkgpu.core.errors import DataError
from sparkgpu.core.table.schema import DroppedColumn, Feature, TableSchema
from sparkgpu.core.words import listed

_SIGNS = {"increasing": 1, "decreasing": -1}
WITHHELD = "withheld by rules.without: it is in the table for checks alone"


def split_features(
    features: Sequence[Feature], rules: RulesConfig
) -> tuple[tuple[Feature, ...], tuple[Feature, ...]]:
    """The features, and those of the columns that ``rules.without`` withholds from models.

    A column that a rule names is in no pair: the rule would have to bind the other column, too.
    """
    bound = {*rules.without, *rules.monotone, *(name for group in rules.interactions for name in group)}
    named = {feature.name for feature in features if feature.source in bound}
    features = [feature for feature in features if not named.intersection(feature.pair or ())]
    beside = tuple(feature for feature in features if feature.source in rules.without)
    return tuple(feature for feature in features if feature not in beside), beside


def with_rules(schema: TableSchema, rules: RulesConfig) -> TableSchema:
    """The schema with the rules by feature. Raises `DataError` for a column that has no feature to bind."""
    columns = [*rules.monotone, *(name for group in rules.interactions for name in group)]
    named = {feature.source for feature in schema.features}
    reasons = {one.column: one.reason for one in schema.dropped}
    for name in columns:
        if name not in named:
            why = reasons.get(name, "it is the target, the weight or the column to split by")
            raise DataError(f"rules: {name!r} is no feature ({why}). Leave it out of the rules.")
    for name in rules.monotone:
        own = [one for one in schema.features if one.source == name]
        kind: str = "category" if own[0].kind == "categorical" else own[0].reading or "number"
        kind = "text" if own[0].is_text else kind
        if kind in ("category", "timestamp", "text"):
            raise DataError(
                f"rules.monotone: {name!r} is a {kind}, which has no direction. Leave it out, or make it a "
                f'number by data.roles = {{"{name}" = "numeric"}} or a column of your own.'
            )
    if rules.monotone and schema.task == "multiclass":
        raise DataError(
            f"rules.monotone: target {schema.target!r} has {len(schema.classes)} classes, and only a number "
            "or the probability of one of two classes has a direction. Leave the rule out."
        )
    if again := [name for name in columns if sum(name in group for group in rules.interactions) > 1]:
        raise DataError(f"rules.interactions: {again[0]!r} is in two groups. Name each column once.")
    groups: list[Any] = [
        [one.name for one in schema.features if one.source in group] for group in rules.interactions
    ]
    rest = [one.name for one in schema.features if not any(one.name in group for group in groups)]
    notes = []
    if rules.monotone:
        what = schema.target if not schema.classes else f"the probability of {schema.classes[1]!r}"
        ways = listed(f"{way} with {name}" for name, way in rules.monotone.items())
        notes.append(f"{what} is {ways}, all else equal, in every model (rules.monotone)")
    if groups:
        parts = listed(" + ".join(group) for group in rules.interactions)
        notes.append(f"in every model columns meet only within {parts} and the rest (rules.interactions)")
    return schema.model_copy(
        update={
            "monotone": {one.name: _SIGNS[rules.monotone[one.source]] for one in schema.features
                         if one.source in rules.monotone},
            "interactions": tuple(map(tuple, [*groups, rest] if groups and rest else groups)),
            "notes": (*schema.notes, *notes),
        }
    )  # fmt: skip


def check_groups(schema: TableSchema, groups: Sequence[str]) -> None:
    """Raise `DataError` for a column by which rows cannot be grouped, since the table does not hold it."""
    held = {feature.source for feature in (*schema.features, *schema.beside)}
    reasons = {one.column: one.reason for one in schema.dropped}
    for name in groups:
        if name not in held:
            raise DataError(
                f"groups {name!r}: it is not in the table ({reasons.get(name, 'it is no feature')}). Name a "
                "feature, or a column of rules.without."
            )


def withheld(beside: Sequence[Feature]) -> list[DroppedColumn]:
    """The columns that are no features by ``rules.without``, each with that reason."""
    return [
        DroppedColumn(column=name, reason=WITHHELD) for name in dict.fromkeys(one.source for one in beside)
    ]
