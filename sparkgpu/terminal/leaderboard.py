"""What ``sparkgpu leaderboard`` and ``compare`` print: the models of several runs, the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from sparkgpu.errors import ConfigError
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results, read_results
from sparkgpu.score.lines import Line, lines_of, ranked
from sparkgpu.words import clean, listed, metric_title, number_text, seconds_text

_WIDE = 160  # where no terminal limits it
_FEWEST_COLUMNS = 5  # run, model, the primary metric, two times


def read_lines(folders: Sequence[Path]) -> tuple[str, list[Line]]:
    """The primary metric, and the models of these runs by it, best first.

    Raises `ConfigError` if a folder holds no finished run, or if the runs are not of one target and task.
    """
    found: dict[str, Results] = {}
    for folder in folders:
        paths = RunPaths(root=folder)
        if not paths.metrics.is_file():
            raise ConfigError(f"{folder}: it holds no metrics.json. Give the folders of finished runs.")
        found[str(folder)] = read_results(paths)
    kinds = {(one.data.target, one.data.task) for one in found.values()}
    if len(kinds) > 1:
        what = listed(f"{target} ({task})" for target, task in sorted(kinds))
        raise ConfigError(f"the runs predict different targets: {what}. Compare runs of one table.")
    metric = next(iter(found.values())).comparison.metric
    return metric, ranked(
        metric, (line for name, results in found.items() for line in lines_of(name, results))
    )


def show(folders: Sequence[Path]) -> None:
    """Print the table with as many metrics as fit. A note says if the runs are not of the same rows."""
    metric, lines = read_lines(folders)
    show_lines(metric, lines, _short([line.run for line in lines]))
    print_line(f"test rows, best {metric_title(metric)} first; a model of several trials: their mean")
    if len({_rows(read_results(RunPaths(root=folder))) for folder in folders}) > 1:
        print_line("note: these runs do not share their test rows, so their metrics compare only roughly")


def show_lines(
    metric: str, lines: Sequence[Line], runs: Sequence[str], last: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Print `lines` under the names `runs`, with as many metrics as fit and the columns `last`."""
    console = Console(markup=False, highlight=False)
    wide = Console(markup=False, highlight=False, width=_WIDE)
    table = _table(metric, lines, runs, last or {}, console.width if console.is_terminal else _WIDE)
    (console if console.is_terminal else wide).print(table)


def print_line(text: str) -> None:
    """One line of text; a file or a pipe gets it unbroken."""
    console = Console(markup=False, highlight=False)
    console.print(clean(text), soft_wrap=not console.is_terminal)


def _table(
    metric: str, lines: Sequence[Line], runs: Sequence[str], last: Mapping[str, Sequence[str]], width: int
) -> Table:
    names = list(dict.fromkeys([metric, *(name for line in lines for name in line.metrics)]))
    titles = ["run", "model", *map(metric_title, names), "fit", "predict", *last]
    rows = [
        [
            clean(run),
            clean(line.model),
            *(number_text(line.metrics.get(name)) for name in names),
            *("–" if value is None else seconds_text(value) for value in (line.fit_s, line.predict_s)),
            *(clean(column[place]) for column in last.values()),
        ]
        for place, (run, line) in enumerate(zip(runs, lines, strict=True))
    ]
    widths = [max(map(len, column)) + 2 for column in zip(titles, *rows, strict=True)]
    metrics_end = len(titles) - 2 - len(last)
    while sum(widths) > width and len(titles) - len(last) > _FEWEST_COLUMNS:  # the last metrics go first
        metrics_end -= 1
        del widths[metrics_end]
        for row in (titles, *rows):
            del row[metrics_end]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, title in enumerate(titles):
        is_number = 2 <= place < len(titles) - len(last)
        table.add_column(title, justify="right" if is_number else "left", no_wrap=is_number)
    for row in rows:
        table.add_row(*row)
    return table


def _short(runs: Sequence[str]) -> list[str]:
    """The folders' own names, or their whole paths if two have the same."""
    names = {run: Path(run).resolve().name for run in runs}
    return [names[run] if len(set(names.values())) == len(names) else run for run in runs]


def _rows(results: Results) -> tuple[object, ...]:
    """What decides the test rows: the table, the sizes of its splits, and the seed that drew them."""
    seeds = [trial.seed for trial in results.trials]
    return results.data.fingerprint, tuple(sorted(results.data.splits.items())), min(seeds, default=0)
