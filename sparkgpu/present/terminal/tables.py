"""Tables on a terminal, and ``sparkgpu leaderboard``: the models of several runs, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.results import Results, finished_results
from sparkgpu.core.words import listed, metric_title
from sparkgpu.present.compare import short_names
from sparkgpu.present.entries import contestants, entries, ranked
from sparkgpu.present.leaderboard import of_runs
from sparkgpu.present.table import Table, rich_table
from sparkgpu.present.terminal.commands import plain_console, show_lines


def leaderboard(folders: Sequence[Path]) -> None:
    """Print the models of these runs with as many metrics as fit; a note if they are not of the same rows.

    Raises `ConfigError` if a folder holds no finished run, or if the runs are not of one target and task.
    """
    found = [finished_results(RunPaths(root=folder)) for folder in folders]
    kinds = {(one.data.target, one.data.task) for one in found}
    if len(kinds) > 1:
        what = listed(f"{target} ({task})" for target, task in sorted(kinds))
        raise ConfigError(f"the runs predict different targets: {what}. Compare runs of one table.")
    metric = found[0].comparison.metric
    runs = zip(short_names(folders), found, strict=True)
    of = ranked(metric, (one for name, results in runs for one in contestants(entries(results, name))))
    print_runs(of_runs(metric, of))
    show_lines(f"test rows, best {metric_title(metric)} first; a model of several trials: their mean")
    if len(set(map(_rows, found))) > 1:
        show_lines("note: these runs do not share their test rows, so their metrics compare only roughly")


def _rows(results: Results) -> tuple[object, ...]:
    """What decides the test rows: the table, the sizes of its splits, and the seed that drew them."""
    seeds = [trial.seed for trial in results.trials]
    return results.data.fingerprint, tuple(sorted(results.data.splits.items())), min(seeds, default=0)


def print_runs(table: Table) -> None:
    """Print a table of `of_runs` with as many metrics as fit; the last ones go first."""
    console = plain_console()
    while (last := table.columns.index("fit") - 1) > 2 and _width(table) > console.width:
        table = table.only([place for place in range(len(table.columns)) if place != last])
    console.print(rich_table(table))


def _width(table: Table) -> int:
    columns = zip(table.columns, *([cell.text for cell in row] for row in table.rows), strict=True)
    return sum(max(map(len, column)) + 2 for column in columns)
