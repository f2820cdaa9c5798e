"""The tables of the comparison's page: runs side by side, the leaderboard, and what differs in the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparkgpu.comparison.board import Board, Entry
from sparkgpu.comparison.runs import Compared
from sparkgpu.report.cells import DASH, Cell, Table, number_cell, seconds_cell
from sparkgpu.report.header import short_source
from sparkgpu.report.tables import signed
from sparkgpu.score.metrics import greater_is_better
from sparkgpu.words import clean, counted, gibibytes, listed, metric_title, number_text, seconds_text

_LONG = 40  # letters of a setting in a cell; the whole stands in its tooltip
_NOT_COMPARED = ("data.source",)  # the runs' table says it


def side_by_side(runs: Sequence[Compared]) -> Table:
    """Facts down, runs across; facts that no run has are left out."""
    facts = [_facts(run) for run in runs]
    rows = [
        (Cell(text=name), *(of_run[name] for of_run in facts))
        for name in facts[0]
        if any(of_run[name].text not in ("", DASH) for of_run in facts)
    ]
    return Table(columns=("run", *(clean(run.name) for run in runs)), rows=tuple(rows))


def leaderboard(board: Board) -> Table:
    """The models of all runs of `board`, with the difference of each from the reference."""
    metric = board.metric
    entries = board.entries
    others = [
        name
        for name in dict.fromkeys(name for entry in entries for name in entry.line.metrics)
        if name != metric
    ]
    arrow = "↑" if greater_is_better(metric) else "↓"
    columns = (
        "model", "run", f"{metric_title(metric)} {arrow}", "95 % interval",
        "minus the reference (95 % interval)", "verdict", "fit", *map(metric_title, others), "predict",
        "engine",
    )  # fmt: skip
    rows = tuple(
        (
            Cell(text=clean(entry.line.model)),
            Cell(text=clean(entry.line.run)),
            replace(number_cell(entry.value), best=entry.is_reference),
            Cell(text=_interval(entry), number=True),
            _difference(entry),
            Cell(text=entry.standing),
            seconds_cell(entry.line.fit_s),
            *(number_cell(entry.line.metrics.get(name)) for name in others),
            seconds_cell(entry.line.predict_s),
            Cell(text=entry.line.engine),
        )
        for entry in entries
    )
    return Table(columns=columns, rows=rows, best_of="validation rows", sortable=True)


def settings(runs: Sequence[Compared]) -> Table:
    """The keys of ``run.toml`` that differ, as they were resolved."""
    return _differing("setting", runs, [run.settings() for run in runs], left_out=_NOT_COMPARED)


def versions(runs: Sequence[Compared]) -> Table:
    """The packages whose versions differ."""
    return _differing("package", runs, [run.results.run.versions for run in runs])


def _differing(
    what: str, runs: Sequence[Compared], values: Sequence[Mapping[str, str]], left_out: Sequence[str] = ()
) -> Table:
    names = sorted(set().union(*values) - set(left_out))
    rows = [
        (Cell(text=name), *(_shortened(of_run.get(name, DASH)) for of_run in values))
        for name in names
        if len({of_run.get(name) for of_run in values}) > 1
    ]
    return Table(columns=(what, *(clean(run.name) for run in runs)), rows=tuple(rows))


def _facts(run: Compared) -> dict[str, Cell]:
    about, data, cost = run.results.run, run.results.data, run.results.cost
    done = run.results.done()
    host = about.host
    gpus = [f"{count} × {name}" for name, count in Counter(host.gpus).items()]
    machine = ", ".join((*gpus, counted(host.cores, "core")))
    lanes = len({trial.lane for trial in run.results.trials})
    devices = listed(sorted({name for trial in run.results.trials for name in trial.devices}))
    strategies = sorted({trial.strategy for trial in run.results.trials} - {"single"})
    finished = len(done) + len(run.results.failed)
    splits = ", ".join(f"{name} {rows:,}" for name, rows in data.splits.items())
    peak = about.peak_rss_bytes
    return {
        "folder": _shortened(str(run.paths.root)),
        "started": Cell(text=about.started_at.replace("T", " ").replace("Z", " UTC")),
        "table": Cell(text=_shortened(short_source(data.source)).text, hint=clean(data.source)),
        "target": Cell(text=f"{clean(data.target)} ({data.task})"),
        "rows": Cell(text=splits),
        "features": Cell(text=f"{data.num_features:,}"),
        "machine": Cell(text=", ".join(text for text in (machine, host.processor) if text)),
        "devices": Cell(text=f"{devices}, {counted(lanes, 'lane')}"),
        "strategy": Cell(text=", ".join(strategies) or DASH),
        "trials": Cell(text=f"{len(done)} of {finished} done" if run.results.failed else f"{len(done)} done"),
        "best model": Cell(text=run.results.comparison.leader or DASH),
        "training time": Cell(text=seconds_text(sum(trial.fit_s for trial in done)) if done else DASH),
        "wall time": Cell(text=about.wall_text),
        "device time": Cell(text=seconds_text(3600 * cost.device_hours)),
        "GPU energy": Cell(text="" if cost.energy_wh is None else f"{number_text(cost.energy_wh)} Wh"),
        "cost": Cell(text="" if cost.price is None else number_text(cost.price)),
        "peak memory": Cell(text=gibibytes(peak) if peak else ""),
        "sparkgpu": Cell(text=about.sparkgpu),
    }


def _interval(entry: Entry) -> str:
    low, high = entry.ci95
    return DASH if low is None or high is None else f"{number_text(low)} to {number_text(high)}"


def _difference(entry: Entry) -> Cell:
    found = entry.difference
    if found is None or found.difference is None:
        return Cell(text=DASH, number=True)
    low, high = found.ci95
    if low is None or high is None:
        return Cell(text=signed(found.difference, None), number=True, value=found.difference)
    width = high - low
    text = "0"
    if width:
        text = f"{signed(found.difference, width)} ({signed(low, width)} to {signed(high, width)})"
    return Cell(text=text, number=True, value=found.difference)


def _shortened(text: str) -> Cell:
    text = clean(text)
    if len(text) <= _LONG:
        return Cell(text=text)
    return Cell(text=f"{text[: _LONG // 2]}…{text[-_LONG // 2 + 1 :]}", hint=text)
