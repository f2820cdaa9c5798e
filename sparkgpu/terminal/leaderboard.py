"""What ``sparkgpu leaderboard`` shows: the models of several runs of one table, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from sparkgpu.errors import ConfigError
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import Results, read_results
from sparkgpu.score.metrics import score
from sparkgpu.words import clean, listed, metric_title, number_text, seconds_text

_WIDE = 160  # where no terminal limits it
_FEWEST_COLUMNS = 5  # run, model, the primary metric, two times


@dataclass(frozen=True, kw_only=True)
class Line:
    """A model of a run; seconds are means over its trials, None for a blend."""

    run: str
    model: str
    engine: str
    metrics: dict[str, float | None]
    fit_s: float | None
    predict_s: float | None


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
    lines = [line for name, results in found.items() for line in _lines(name, results)]
    known = [line for line in lines if line.metrics.get(metric) is not None]
    known.sort(key=lambda line: -score(metric, line.metrics[metric] or 0.0))
    return metric, known


def _lines(run: str, results: Results) -> list[Line]:
    lines = []
    for model in results.models:
        done = results.done(model.name)
        lines.append(
            Line(
                run=run,
                model=model.name,
                engine=model.engine or "",
                metrics=(model.averaged or model.metrics).test,
                fit_s=sum(trial.fit_s for trial in done) / len(done) if done else None,
                predict_s=sum(trial.predict_s for trial in done) / len(done) if done else None,
            )
        )
    return lines


def show(folders: Sequence[Path]) -> None:
    """Print the table with as many metrics as fit. A note says if the runs are not of the same rows."""
    metric, lines = read_lines(folders)
    console = Console(markup=False, highlight=False)
    wide = Console(markup=False, highlight=False, width=_WIDE)
    table = _table(metric, lines, console.width if console.is_terminal else _WIDE)
    (console if console.is_terminal else wide).print(table)
    console.print(f"test rows, best {metric_title(metric)} first; a model of several trials: their mean")
    if len({_rows(read_results(RunPaths(root=folder))) for folder in folders}) > 1:
        console.print("note: these runs do not share their test rows, so their metrics compare only roughly")


def _table(metric: str, lines: Sequence[Line], width: int) -> Table:
    names = list(dict.fromkeys([metric, *(name for line in lines for name in line.metrics)]))
    runs = _short([line.run for line in lines])
    titles = ["run", "model", *map(metric_title, names), "fit", "predict"]
    rows = [
        [
            clean(run),
            clean(line.model),
            *(number_text(line.metrics.get(name)) for name in names),
            *("–" if value is None else seconds_text(value) for value in (line.fit_s, line.predict_s)),
        ]
        for run, line in zip(runs, lines, strict=True)
    ]
    widths = [max(map(len, column)) + 2 for column in zip(titles, *rows, strict=True)]
    while sum(widths) > width and len(titles) > _FEWEST_COLUMNS:  # the last metrics go first
        del widths[-3]
        for row in (titles, *rows):
            del row[-3]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, title in enumerate(titles):
        table.add_column(title, justify="left" if place < 2 else "right", no_wrap=place >= 2)
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
