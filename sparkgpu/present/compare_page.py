"""What `sparkgpu compare` prints, and its page: one self-contained file in the frame and style of the report.

Limits: all text from the runs is escaped; the page loads nothing from the network. A file that this module
did not write is never replaced.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from markupsafe import Markup

from sparkgpu import __version__
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.words import clean, counted, listed, metric_title, seconds_text, short_source
from sparkgpu.present.compare import Board, Compared, board, boards_of, read_runs, why_apart
from sparkgpu.present.entries import Entry
from sparkgpu.present.figure import plot_style
from sparkgpu.present.pictures import scores
from sparkgpu.present.report import page_of, render
from sparkgpu.present.result_tables import Fact, signed, signed_interval, taken
from sparkgpu.present.table_model import DASH, Cell, Table, interval_cell, number_cell, seconds_cell, table_of
from sparkgpu.present.terminal.commands import plain_console, print_table, show_lines
from sparkgpu.score.metrics import greater_is_better

_LONG = 40  # letters of a setting in a cell; the whole stands in its tooltip
_NOT_COMPARED = ("data.source",)  # the runs' table says it
_MARK = "<!-- made by sparkgpu compare -->"


def check_page(out: Path) -> None:
    """Raise `ConfigError` if the page cannot be written to `out`."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {out}: the page is HTML. Give a name that ends with .html.")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}. Make it, or give another file.")
    if not os.access(out.parent, os.W_OK):
        raise ConfigError(f"--out {out}: you may not write in {out.parent}. Give another folder.")
    if out.exists() and not (out.is_file() and _MARK.encode() in out.read_bytes()):
        raise ConfigError(
            f"--out {out}: it exists, and sparkgpu compare did not write it. Give another name."
        )


def compare(folders: Sequence[Path], out: Path, *, as_json: bool = False) -> Path:
    """Print the leaderboards of the runs in `folders`, and write their page to `out`.

    With `as_json` they are printed for programs.

    Raises `ConfigError` if these are not several finished runs, or if the page cannot be written.
    """
    check_page(out)
    runs = read_runs(folders)
    groups = boards_of(runs)
    apart = why_apart(groups)
    boards = [board(group) for group in groups]
    if as_json:
        _write_page(out, runs, boards, apart)
        found = [one.as_dict() for one in boards]
        print(json.dumps({"boards": found, "apart": apart, "page": str(out)}, indent=2))
        return out
    if apart:
        show_lines(apart)
    for one in boards:
        show_lines("")
        if apart:
            show_lines(one.title)
        print_table(plain_console(), _leaderboard(one))
        show_lines(one.verdict)
        show_lines(one.note)
    _write_page(out, runs, boards, apart)
    show_lines("")
    show_lines(f"page  {out}")
    return out


def _write_page(out: Path, runs: Sequence[Compared], boards: Sequence[Board], apart: str | None) -> None:
    """Over an earlier one. `apart` says why there are several boards, if there are."""
    looks = scores.run_styles(runs)
    with plot_style():
        shown = [
            {
                "title": one.title,
                "board": one,
                "leaderboard": _leaderboard(one),
                "ranks": scores.ranking(one, looks, number),
                "curves": scores.curves_of_runs(one, looks, number),
                "time": scores.score_for_time(one, looks, number),
            }
            for number, one in enumerate(boards, start=1)
        ]
    content: dict[str, object] = {
        "boards": shown,
        "apart": apart,
        "runs": _side_by_side(runs),
        "settings": settings(runs),
        "versions": versions(runs),
    }
    names = dict.fromkeys(clean(short_source(run.results.data.source)) for run in runs)
    wall_s = sum(run.results.run.wall_s for run in runs)
    hours = sum(run.results.cost.device_hours for run in runs)
    frame = {
        "mark": Markup(_MARK),
        "title": f"{counted(len(runs), 'run')} of {listed(names, most=3)}",
        "facts": [
            Fact("runs", listed((run.name for run in runs), most=4)),
            Fact("models", str(sum(len(one.entries) for one in boards))),
            Fact("wall time of all", seconds_text(wall_s)),
            Fact("device time of all", seconds_text(3600 * hours)),
        ],
        "version": __version__,
    }
    sections = [
        (name, name.title(), render(f"compare_{name}.html.j2", "html", content))
        for name in ("leaderboard", "training", "runs", "differences")
    ]
    write_text(out, page_of("compare_page.html.j2", "html", frame, sections))


def _leaderboard(one: Board) -> Table:
    """The models of all runs of a board; a narrow terminal leaves out the last columns."""
    others = dict.fromkeys(name for entry in one.entries for name in entry.metrics() if name != one.metric)
    arrow = "↑" if greater_is_better(one.metric) else "↓"
    return table_of(
        one.entries,
        {
            "model": lambda entry: entry.name,
            "run": lambda entry: entry.run,
            f"{metric_title(one.metric)} {arrow}": lambda entry: replace(
                number_cell(entry.value), best=entry.is_reference
            ),
            "verdict": lambda entry: entry.verdict,
            "minus the reference (95 % interval)": _difference,
            "95 % interval": lambda entry: interval_cell(*entry.ci95),
            "fit": lambda entry: seconds_cell(entry.fit_s),
            **{metric_title(name): partial(_metric_cell, name) for name in others},
            "predict": lambda entry: seconds_cell(entry.predict_s),
            "engine": lambda entry: entry.model.engine or "",
        },
        best_of="validation rows",
        sortable=True,
    )


def _metric_cell(metric: str, entry: Entry) -> Cell:
    return number_cell(entry.metrics().get(metric))


def _difference(entry: Entry) -> Cell:
    value = entry.difference.difference if entry.difference else None
    if entry.difference is None or entry.difference.ci95[0] is None:
        return number_cell(value, signed(value, None))
    low, high = entry.difference.ci95
    text = "0" if low == high else f"{signed(value, high - low)} ({signed_interval(low, high)})"
    return number_cell(value, text)


def settings(runs: Sequence[Compared]) -> Table:
    """The keys of ``run.toml`` that differ, as they were resolved."""
    return _differing("setting", runs, [run.settings() for run in runs])


def versions(runs: Sequence[Compared]) -> Table:
    """The packages whose versions differ."""
    return _differing("package", runs, [run.results.run.versions for run in runs])


def _differing(what: str, runs: Sequence[Compared], values: Sequence[Mapping[str, str]]) -> Table:
    lines = {
        name: [_shortened(of_run.get(name, DASH)) for of_run in values]
        for name in sorted(set().union(*values) - set(_NOT_COMPARED))
        if len({of_run.get(name) for of_run in values}) > 1
    }
    return _across(what, runs, lines)


def _side_by_side(runs: Sequence[Compared]) -> Table:
    """What each run was, and what it took; facts that no run has are left out."""
    facts = [_facts(run) for run in runs]
    lines = {name: [of_run[name] for of_run in facts] for name in facts[0]}
    return _across(
        "run",
        runs,
        {name: of for name, of in lines.items() if any(cell.text not in ("", DASH) for cell in of)},
    )


def _across(what: str, runs: Sequence[Compared], lines: Mapping[str, Sequence[Cell]]) -> Table:
    """A line for each name, with a cell for each run."""
    rows = tuple((Cell(text=name), *of_run) for name, of_run in lines.items())
    return Table(columns=(what, *(run.name for run in runs)), rows=rows)


def _facts(run: Compared) -> dict[str, Cell]:
    found, about, data = run.results, run.results.run, run.results.data
    done, host = found.done(), about.host
    gpus = [f"{count} × {name}" for name, count in Counter(host.gpus).items()]
    machine = (*gpus, counted(host.cores, "core"), host.processor)
    devices = listed(sorted({name for trial in found.trials for name in trial.devices}))
    lanes = counted(len({trial.lane for trial in found.trials}), "lane")
    of_all = f" of {len(found.trials)}" if found.failed else ""
    texts = {
        "started": about.started_at.replace("T", " ").replace("Z", " UTC"),
        "target": f"{clean(data.target)} ({data.task})",
        "rows": ", ".join(f"{name} {rows:,}" for name, rows in data.splits.items()),
        "machine": ", ".join(filter(None, machine)),
        "devices": f"{devices}, {lanes}",
        "trials": f"{len(done)}{of_all} done",
        **{fact.name: fact.text for fact in taken(found)},
        "sparkgpu": about.sparkgpu,
    }
    table = Cell(text=_shortened(short_source(data.source)).text, hint=clean(data.source))
    return {
        "folder": _shortened(str(run.paths.root)),
        "table": table,
        **{name: Cell(text=text) for name, text in texts.items()},
    }


def _shortened(text: str) -> Cell:
    text = clean(text)
    if len(text) <= _LONG:
        return Cell(text=text)
    return Cell(text=f"{text[: _LONG // 2]}…{text[-_LONG // 2 + 1 :]}", hint=text)
