"""What configuration and figures decide: the columns in use, refusals, and the notes for the user."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from sparkgpu.core.config.keys import DataConfig, RunConfig, SplitConfig
from sparkgpu.core.config.values import Role
from sparkgpu.core.errors import DataError
from sparkgpu.core.table.schema import DroppedColumn, Feature, TableSchema
from sparkgpu.core.table.source import TEXT_FORMATS
from sparkgpu.core.words import listed, nearest
from sparkgpu.prepare.column_values import MISSING_TEXTS
from sparkgpu.prepare.columns import TIME_TYPES, is_number, refuse_reserved
from sparkgpu.prepare.features import Levels
from sparkgpu.prepare.roles import ID_LIKE, ColumnRole, ColumnStatistics, decide_roles, family_of
from sparkgpu.prepare.target import Target, has_decimal_commas

_FEW_OF_CLASS = 10

_FITTING: Mapping[Role, tuple[str, ...]] = {
    "numeric": ("number", "boolean", "text"),
    "boolean": ("number", "boolean", "text"),
    "timestamp": ("number", "text", "time"),
    "categorical": ("number", "boolean", "text", "time"),
    "text": ("text",),
}
"""The families of columns that can be read in each role."""

_UNREAD: tuple[tuple[Callable[[list[str]], bool], str, tuple[str, ...], str, str], ...] = (
    (
        has_decimal_commas,
        "numbers",
        ("csv",),
        'set data.decimal = ","',
        "write them with a decimal point and no other separator",
    ),
    (
        lambda texts: all(
            re.fullmatch(r"[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{4}( .*)?", text) for text in texts
        ),
        "timestamps",
        TEXT_FORMATS,
        'set data.date_format, such as "%d.%m.%Y"',
        "write them as 2024-12-31",
    ),
)
"""How people write numbers and dates; in some formats of tables a key reads them, in others nothing does."""


def checked_targets(source: str, types: Mapping[str, str], config: RunConfig) -> tuple[str, ...]:
    """The targets, after every column that the configuration names was found; `types` are Spark's.

    Raises `DataError`, with the nearest name if there is no such column.
    """
    data, split, rules = config.data, config.split, config.rules
    if not data.targets:
        raise DataError(f"no target is named. Choose the column to predict with --target: {listed(types)}.")
    special = [
        *(("target", name) for name in data.targets),
        ("data.weight", data.weight),
        ("split.column", split.column),
    ]
    named = [
        *special,
        *(("data.ignore", name) for name in data.ignore),
        *((f"data.roles ({role})", name) for name, role in data.roles.items()),
        *(("rules.monotone", name) for name in rules.monotone),
        *(("rules.interactions", name) for group in rules.interactions for name in group),
        *(("rules.without", name) for name in rules.without),
        *(("groups", name) for name in config.groups),
    ]
    for key, name in named:
        if name is not None and name not in types:
            raise DataError(
                f"{key} {name!r}: no such column.{nearest(name, types)} Columns: {listed(types)}."
            )
    for name, role in data.roles.items():
        _check_role(name, types[name], role)
    uses = {"data.weight": data.weight, "split.column": split.column if split.kind != "time" else None}
    for key, name in uses.items():
        if name in data.targets:
            raise DataError(f"{key} {name!r} is the target. Choose another column, or another target.")
    for name in rules.without:
        if use := next((key for key, used in special if used == name), None):
            raise DataError(f"rules.without {name!r}: it is the {use}. Leave it out of rules.without.")
    refuse_reserved(source, types)
    return data.targets


def _check_role(name: str, kind: str, role: Role) -> None:
    family = family_of(kind)
    if role in _FITTING and family not in _FITTING[role]:
        others = [other for other, families in _FITTING.items() if family in families]
        raise DataError(
            f"data.roles: {name!r} is of type {kind} and cannot be read as {role}. "
            f"Choose {', '.join([*others, 'ignore'])}."
        )


def check_split_column(config: SplitConfig, types: Mapping[str, str]) -> None:
    """Refuse a column whose type cannot split the rows in the way that was asked for."""
    if config.column is None:
        return
    kind = types[config.column]
    has_order = is_number(kind) or kind in TIME_TYPES
    fits, fault = {
        "column": (kind == "string", "; it may hold only the texts train, valid and test. Name another."),
        "group": (has_order or kind in ("boolean", "string"), ", which cannot name groups. Choose another."),
        "time": (
            has_order or kind == "string",
            "; a split by time needs dates, timestamps, texts such as 2024-01-31, or numbers. Convert it.",
        ),
    }[config.kind]
    if not fits:
        raise DataError(f"split.column {config.column!r} is of type {kind}{fault}")


def roles_of(
    statistics: Mapping[str, ColumnStatistics], config: RunConfig
) -> tuple[list[ColumnRole], list[DroppedColumn]]:
    """The roles of the columns in use, and the columns left out. Raises `DataError` if none is in use."""
    special = {*config.data.targets, config.data.weight}
    if config.split.kind in ("group", "column"):
        special.add(config.split.column)
    candidates = [column for name, column in statistics.items() if name not in special]
    roles, dropped = decide_roles(candidates, roles=config.data.roles, ignore=config.data.ignore)
    check_features(roles, dropped)
    return roles, dropped


def check_features(kept: Sequence[object], dropped: Sequence[DroppedColumn]) -> None:
    """Raises `DataError` if no column, or no feature, is kept."""
    if not kept:
        reasons = listed(f"{item.column} ({item.reason})" for item in dropped)
        raise DataError(
            f"no usable features: {reasons or 'the target is the only column'}. "
            "Give a table with columns to learn from."
        )


def check_splits(schema: TableSchema) -> None:
    needed = ("train", "test") if schema.folds else ("train", "valid", "test")
    empty = [name for name in needed if schema.splits[name] == 0]
    if empty:
        raise DataError(
            f"{schema.source}: {schema.rows:,} usable rows leave none for {listed(empty)}. "
            "Give more rows, or other shares in [split]."
        )


def notes_on(
    config: DataConfig,
    *,
    statistics: Mapping[str, ColumnStatistics],
    targets: Sequence[Target],
    roles: Sequence[ColumnRole],
    dropped: Sequence[DroppedColumn],
    features: Sequence[Feature],
    levels: Mapping[str, Levels],
    source_format: str | None,
    padded: Collection[str],
) -> tuple[str, ...]:
    """The notes for the user, one sentence each: what counts as missing, what texts are read as, and more."""
    notes = []
    for column in (statistics[role.column] for role in roles):
        if column.infinite:
            notes.append(f"{column.infinite:,} infinite values in {column.name!r} count as missing")
        if column.too_large:
            notes.append(f"{column.too_large:,} values beyond 3.4e38 in {column.name!r} count as missing")
    for held in ("numbers", "timestamps"):
        names = [role.column for role in roles if not role.asked and statistics[role.column].held == held]
        if held == "numbers":
            names += [target.column for target in targets if statistics[target.column].held == held]
        if names:
            are = "is text that holds" if len(names) == 1 else "are texts that hold"
            read = "is read" if len(names) == 1 else "are read"
            notes.append(f"{listed(map(repr, names))} {are} {held} and {read} as such")
    for name, number in Counter(feature.source for feature in features if feature.is_text).items():
        notes.append(
            f"{name!r} is read as text, word by word: {number} features; "
            f"{_as_role(name, 'ignore')} leaves it out"
        )
    id_like = [item.column for item in dropped if item.reason.startswith(ID_LIKE)]
    unread = _unread_notes(levels, source_format, id_like)
    ids = [statistics[name] for name in id_like if name not in unread]
    numbers = [column.name for column in ids if column.numeric or column.held == "codes"]
    texts = [column.name for column in ids if column.name not in numbers]
    for role, left_out in (("numeric", numbers), ("categorical", texts)):
        if left_out:
            one = "one of " if len(left_out) > 1 else ""
            notes.append(f"{_as_role(left_out[0], role)} takes {one}{listed(map(repr, left_out))} in")
    if codes := [
        one.column for one in roles if one.column in padded and one.role == "numeric" and not one.asked
    ]:
        hold, are, it = ("hold", "are", "one") if len(codes) > 1 else ("holds", "is", "it")
        notes.append(
            f"{listed(map(repr, codes))} {hold} whole numbers with leading zeros, as codes have, and {are} "
            f"read as numbers; {_as_role(codes[0], 'categorical')} makes {it} a category"
        )
    notes += unread.values()
    for target in targets:
        of_class = zip(target.classes, target.class_rows, strict=True)
        if few := [f"{name} ({rows})" for name, rows in of_class if rows < _FEW_OF_CLASS]:
            notes.append(
                f"classes with fewer than {_FEW_OF_CLASS} rows, which no model can learn well: {listed(few)}"
            )
    if config.class_weights == "balanced" and not any(target.classes for target in targets):
        notes.append("class_weights = balanced has no meaning for a regression and was not applied")
    most = config.max_categories
    for feature in features:
        if len(feature.levels) > most:
            found = levels[feature.source]
            notes.append(
                f"{feature.title}: {found.num_levels:,} levels; all but the {most:,} most frequent became "
                f"one, in {100 * (1 - found.kept / found.values):.1f} % of the training rows "
                "(data.max_categories)"
            )
    for feature in features:
        if feature.reading == "sum":
            notes.append(f"{feature.title}: the sum and the difference of the two are features as well")
    if with_mean := dict.fromkeys(feature.source for feature in features if feature.means_of):
        notes.append(f"{listed(with_mean)}: the mean target of each level, all counted, is a feature as well")
    return tuple(notes)


def _as_role(column: str, role: str) -> str:
    """The key that gives a column this role."""
    return f'data.roles = {{{json.dumps(column, ensure_ascii=False)} = "{role}"}}'


def _unread_notes(
    levels: Mapping[str, Levels], source_format: str | None, id_like: Collection[str]
) -> dict[str, str]:
    """The note on each text column that plainly holds numbers or dates, by its levels in training rows."""
    notes = {}
    for column, found in levels.items():
        texts = [text for text in found.levels if text not in MISSING_TEXTS]
        for are_such, what, formats, by_key, otherwise in _UNREAD:
            if texts and are_such(texts):
                so = " and so are id-like" if column in id_like else ""
                one = next((text for text in texts if "," in text), texts[0])
                notes[column] = (
                    f"{column!r} holds texts such as {one!r}, which are not read as {what}{so}; "
                    f"{by_key if source_format in formats else otherwise}"
                )
    return notes
