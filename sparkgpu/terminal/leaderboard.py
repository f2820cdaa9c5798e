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
    """Print the table. A note says if the runs are not of the same rows."""
    metric, lines = read_lines(folders)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    names = list(dict.fromkeys(name for line in lines for name in line.metrics))
    for title in ("run", "model", "engine"):
        table.add_column(title, overflow="fold")
    for title in (*map(metric_title, names), "fit", "predict"):
        table.add_column(title, justify="right")
    for line in lines:
        table.add_row(
            clean(line.run),
            clean(line.model),
            clean(line.engine),
            *(number_text(line.metrics.get(name)) for name in names),
            *("–" if value is None else seconds_text(value) for value in (line.fit_s, line.predict_s)),
        )
    console = Console(markup=False, highlight=False)
    console.print(table)
    console.print(f"test rows, best {metric_title(metric)} first; a model of several trials: their mean")
    if len({_rows(read_results(RunPaths(root=folder))) for folder in folders}) > 1:
        console.print("note: these runs do not share their test rows, so their metrics compare only roughly")


def _rows(results: Results) -> tuple[object, ...]:
    """What decides the test rows: the table, the sizes of its splits, and the seed that drew them."""
    seeds = [trial.seed for trial in results.trials]
    return results.data.fingerprint, tuple(sorted(results.data.splits.items())), min(seeds, default=0)
