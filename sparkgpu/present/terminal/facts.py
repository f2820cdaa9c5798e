"""Facts of the plan and of the prepared table, as two columns. It loads no records' modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkgpu.core.words import clean, counted, gibibytes, listed

if TYPE_CHECKING:
    from sparkgpu.core.plan.plan import Plan
    from sparkgpu.core.table.schema import TableSchema


def plan_facts(plan: Plan) -> Iterable[tuple[str, str]]:
    yield "preset", plan.reasons.get("preset", f"{plan.preset}, as asked")
    for lane in plan.lanes:
        device = lane.device if lane.device == "cpu" else f"{lane.device} {lane.device_name}"
        if plan.master is not None:
            yield f"lane {lane.index}", f"{lane.device_name}, {counted(lane.threads, 'core')}"
            continue
        yield (
            f"lane {lane.index}",
            f"{device}, {counted(lane.tree_threads, 'thread')} for trees and {lane.neural_threads} for the "
            "network, "
            + (f"{gibibytes(lane.heap_bytes)} of Java heap, " if lane.heap_bytes else "")
            + f"ports from {lane.port_base}",
        )
    yield "trials", f"{len(plan.trials)}: {listed((trial.name for trial in plan.trials), most=6)}"
    for key, reason in plan.reasons.items():
        if key != "preset":
            yield key, reason


def table_facts(schema: TableSchema) -> Iterable[tuple[str, str]]:
    splits = ", ".join(f"{name} {rows:,}" for name, rows in schema.splits.items())
    refused = f"; {schema.rows_refused:,} refused: no target value" if schema.rows_refused else ""
    yield "rows", f"{schema.rows_text} ({splits}){refused}"
    classes = f": {listed(schema.classes, most=6)}" if schema.classes else ""
    folds = f", {schema.folds} folds" if schema.folds else ""
    kind = f", {schema.task}{classes}" if not schema.targets else ""
    yield "targets" if schema.targets else "target", f"{schema.target}{kind}{folds}"
    kinds = ", ".join(
        f"{len(features):,} {kind}"
        for kind, features in (("numeric", schema.numeric), ("categorical", schema.categorical))
        if features
    )
    yield "features", f"{len(schema.features):,}: {kinds}"
    if schema.dropped:
        yield "dropped", listed((f"{item.column} ({item.reason})" for item in schema.dropped), most=6)
    for note in schema.notes:
        yield "note", note


def print_facts(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Two columns on a terminal; elsewhere a line for each fact, by which logs can be searched."""
    found = [(clean(name), clean(text)) for name, text in pairs]
    if not console.is_terminal:
        width = max(9, *(len(name) for name, _ in found))
        console.print(*(Text(f"{name:<{width}} {text}") for name, text in found), sep="\n", soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for pair in found:
        grid.add_row(*pair)
    console.print(grid)
