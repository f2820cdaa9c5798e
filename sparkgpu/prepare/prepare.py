"""Makes ``table/`` and ``pipeline/`` from the user's table: roles, target, split, features; written once.

What is found out about the table (`find_out`) needs no Spark where its rows lie on this machine, and so runs
while Spark starts. Then either Spark's pipeline makes the features of each row (`write_by_spark`), or the
transform that predictions use (`write_by_arrow`); both give the same table. Everything is written under a
temporary name and renamed as a whole, so ``table/schema.json`` appears only when the table is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.values import Role
from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import HeldOut, TableSchema
from sparkgpu.core.table.source import TEXT_FORMATS, Source
from sparkgpu.core.words import listed
from sparkgpu.prepare.decisions import (
    check_features,
    check_split_column,
    checked_targets,
    notes_on,
    roles_of,
)
from sparkgpu.prepare.features import count_levels, features_of, useful_roles
from sparkgpu.prepare.file_columns import file_states, files_of
from sparkgpu.prepare.kernel import look
from sparkgpu.prepare.local_rows import LocalRows, merged
from sparkgpu.prepare.pipeline import pipeline_model, vector_name
from sparkgpu.prepare.rules import check_groups, split_features, with_rules, withheld
from sparkgpu.prepare.spark_rows import SparkRows
from sparkgpu.prepare.spark_source import open_all
from sparkgpu.prepare.split import SPLITS, SplitRule, fitted_rule, look_at_split
from sparkgpu.prepare.table_rows import (
    RowWriter,
    cleared,
    completed,
    with_mean_columns,
    write_assembled,
    write_encoded,
)
from sparkgpu.prepare.target import (
    Target,
    Targets,
    check_distributions,
    check_weight_type,
    class_weights,
    find_target,
)
from sparkgpu.prepare.target_means import count_means, whose_levels_have_means, with_means, write_means
from sparkgpu.prepare.text import no_rows
from sparkgpu.prepare.texts import fit_texts, load_texts, write_texts
from sparkgpu.prepare.unreadable import refusing_unreadable
from sparkgpu.score.decision import rule_of
from sparkgpu.score.metrics import check_asked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def find_out(
    rows: LocalRows | SparkRows, *, source: Source, config: RunConfig, paths: RunPaths, events: EventWriter
) -> RowWriter:
    """Roles, target, split, levels and mean targets of a table, in a few passes over its rows.

    Returns what writes the rows, whose splits are counted then. Raises `DataError` if the table is unusable.
    """
    types, data, name = rows.types, config.data, source.name
    with events.phase("reading the source"):
        names = checked_targets(name, types, config)
        asked: dict[str, Role] = dict(data.roles)
        if data.task == "regression":  # the user's task decides what the target's texts are
            asked |= dict.fromkeys(names, "numeric")
        found = merged(rows.map(partial(look, schema=rows.schema, targets=names, roles=asked), types))
        if found.rows == 0:
            raise no_rows(name)
        statistics = found.statistics(types)
        targets = tuple(find_target(statistics[name], data.task) for name in names)
        deviances = {}
        for target in targets:
            if config.metric is not None:
                check_asked(config.metric, target.task, len(target.classes))
            deviances[target.column] = check_distributions(config, target, statistics[target.column].least)
        target = targets[0]
        decision = rule_of(config.decision, target.classes)
        roles, dropped = roles_of(statistics, config)
    with events.phase("splitting"):
        several = Targets(each=targets, rows=found.rows) if len(targets) > 1 else None
        rule = _split_rule(rows, config, several or target)
    with events.phase("fitting the feature pipeline"):
        words = {role.column: types[role.column] for role in roles if role.role == "categorical"}
        count = partial(count_levels, types=words, rule=rule)
        levels = merged(rows.map(count, [*rule.columns, *words])).levels(data.max_categories)
        roles, useless = useful_roles(roles, levels)
        roles, wordless, texts = fit_texts(rows, roles, rule, data.weight)
        dropped += useless + wordless
        as_they_are = [role.column for role in roles if statistics[role.column].is_feature_as(role.role)]
        features, beside = split_features(features_of(roles, types, levels, as_they_are), config.rules)
        dropped += withheld(beside)
        beside = tuple(feature for feature in beside if not feature.is_text)  # no check reads texts
        check_features(features, dropped)
        if data.target_means:
            features = with_means(features, levels, targets, data.max_categories)
        made = RunPaths(root=paths.root / ".table")  # the table, until it is complete
        shutil.rmtree(made.root, ignore_errors=True)
        tables = [made.table, *(made.target(folder).table for folder in data.folders)]
        for table in tables:
            table.mkdir(parents=True)
            write_texts(table, features, texts)
        if capped := whose_levels_have_means(features):
            columns = [*rule.columns, *(feature.source for feature in capped)]
            columns += [data.weight] if data.weight else []
            count_them = partial(count_means, rule=rule, features=capped, weight=data.weight)
            counts = merged(rows.map(count_them, columns))
            for feature, counted in counts.counted.items():
                for table in tables:
                    write_means(table, feature, counted)
    notes = notes_on(
        data,
        statistics=statistics,
        targets=targets,
        roles=roles,
        dropped=dropped,
        features=features,
        levels=levels,
        source_format=source.format,
        padded=rows.padded,
    )
    held_out = {
        split: HeldOut(table=table.name, first=rows.starts[split]) for split, table in source.held_out.items()
    }
    usable = rule.target  # whose labels in all are counted by now
    whole = TableSchema(
        source=name,
        dialect=source.dialect,
        target=listed(names),
        task=target.task,
        features=features,
        dropped=tuple(dropped),
        notes=(*notes, *rows.notes, *source.notes),
        weighted=bool(data.weight),
        weight=data.weight,
        folds=config.split.folds,
        rows=usable.rows,
        rows_refused=usable.rows_refused,
        splits={},
        held_out=held_out,
        fingerprint=found.fingerprint,
        metric=config.metric,
        decision=decision,
        beside=beside,
        targets=data.folders,
    )

    def of(target: Target) -> TableSchema:
        balance = class_weights(data, target)
        own = {
            "target": target.column,
            "target_type": target.type,
            "task": target.task,
            "classes": target.classes,
            "weighted": bool(data.weight or balance),
            "class_weights": balance,
            "rows": target.rows,
            "rows_refused": target.rows_refused,
            "deviances": deviances[target.column],
            "targets": (),
            "other_targets": tuple(name for name in names if name != target.column),
        }
        schema = with_rules(whole.model_copy(update=own), config.rules)
        check_groups(schema, config.groups)
        return schema

    schemas = [of(target) for target in targets]
    if not several:
        return RowWriter(paths=made, schema=schemas[0], rule=rule, states=rows.states)
    by_folder = dict(zip(data.folders, schemas, strict=True))
    return RowWriter(paths=made, schema=whole, rule=rule, states=rows.states, by_target=by_folder)


def _split_rule(rows: LocalRows | SparkRows, config: RunConfig, target: Target | Targets) -> SplitRule:
    weight, column = config.data.weight, config.split.column if config.split.kind != "random" else None
    split = config.split.model_copy(update={"column": column})
    check_split_column(split, rows.types)
    if weight:
        check_weight_type(weight, rows.types[weight])
    starts = {SPLITS[name]: first for name, first in rows.starts.items()}
    rule = SplitRule(config=split, seed=config.seed, target=target, starts=starts)
    columns = [*rule.columns, weight] if weight else rule.columns
    found = merged(rows.map(partial(look_at_split, rule=rule, weight=weight), columns))
    if unweighted := found.rows["unweighted"]:
        raise DataError(
            f"data.weight {weight!r}: {unweighted:,} rows have no number from 0 to 3.4e38. Correct or remove "
            "them."
        )
    return fitted_rule(rule, found)


def prepare_in_session(
    session: SparkSession,
    source: Source,
    *,
    config: RunConfig,
    scratch: Path,
    paths: RunPaths,
    events: EventWriter,
) -> TableSchema:
    """Prepare a table whose rows Spark holds, all of it in Spark's tasks; see `write_by_spark`."""
    with refusing_unreadable(source), ExitStack() as stack:
        files = [file for one in source.tables if not one.is_far for file in files_of(one)]
        states = file_states(files)
        with events.phase("reading the source"):
            table, starts = open_all(session, source, scratch, ignore=config.data.ignore)
            if any(one.format in TEXT_FORMATS for one in source.tables):  # their lines would be parsed again
                stack.callback(table.persist().unpersist)
        rows = SparkRows(table, starts, states)
        writer = find_out(rows, source=source, config=config, paths=paths, events=events)
        schema, save = write_by_spark(session, table, writer, paths=paths, events=events)
        save()
        return schema


def write_by_arrow(
    rows: LocalRows, writer: RowWriter, *, paths: RunPaths, events: EventWriter
) -> TableSchema:
    """Write the table with the transform that predictions apply, in threads. Returns its schema."""
    with events.phase("writing the table"), cleared(writer):
        return completed(writer, write_encoded(rows, writer), paths)


def write_by_spark(
    session: SparkSession, table: DataFrame, writer: RowWriter, *, paths: RunPaths, events: EventWriter
) -> tuple[TableSchema, Callable[[], None]]:
    """Write what the pipeline makes of `table` (row id and the user's columns).

    Returns the schema, and what saves the pipeline: a second's work, for which nobody has to wait.
    """
    types = dict(table.dtypes)
    with events.phase("writing the table"), cleared(writer):
        texts = load_texts(writer.paths.table, writer.schema.features)
        model = pipeline_model(session, writer.schema.features, types, texts)
        assembled = model.transform(with_mean_columns(table, writer))
        splits = write_assembled(assembled, vector_name(types), writer)
        return completed(writer, splits, paths), partial(_save, model, paths)


def _save(model: Any, paths: RunPaths) -> None:
    """Save the pipeline by Spark's own writer; it is complete or absent."""
    made = paths.pipeline.with_name(f".{paths.pipeline.name}")
    model.write().overwrite().save(f"file://{made.absolute()}")  # Hadoop decodes no escapes
    shutil.rmtree(paths.pipeline, ignore_errors=True)
    made.replace(paths.pipeline)
