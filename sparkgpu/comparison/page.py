"""The page of a comparison: one self-contained file in the frame and the style of the report.

Limits: all text from the runs is escaped; the page loads nothing from the network. A file that this module
did not write is never replaced.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, PrefixLoader, Template
from markupsafe import Markup

from sparkgpu import __version__
from sparkgpu.comparison import pictures, tables
from sparkgpu.comparison.board import Board
from sparkgpu.comparison.runs import Compared
from sparkgpu.errors import ConfigError
from sparkgpu.report.figure import plot_style
from sparkgpu.report.frame import dress, environment
from sparkgpu.report.header import Fact, short_source
from sparkgpu.rundir.files import write_text
from sparkgpu.words import clean, counted, listed, seconds_text

_MARK = "<!-- made by sparkgpu compare -->"
_MARK_WITHIN = 4096  # bytes from the file's begin


def check_page(out: Path) -> None:
    """Raise `ConfigError` if the page cannot be written to `out`."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {out}: the page is HTML. Give a name that ends with .html.")
    if out.is_dir():
        raise ConfigError(f"--out {out}: it is a folder. Give the name of a file.")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}. Make it, or give another file.")
    if not os.access(out.parent, os.W_OK):
        raise ConfigError(f"--out {out}: you may not write in {out.parent}. Give another folder.")
    if out.exists():
        with out.open("rb") as file:
            if _MARK.encode() not in file.read(_MARK_WITHIN):
                raise ConfigError(
                    f"--out {out}: it exists, and sparkgpu compare did not write it. Give another name."
                )


def write_page(out: Path, runs: Sequence[Compared], boards: Sequence[Board], apart: str | None) -> Path:
    """Write the page over an earlier one. `apart` says why there are several boards, if there are."""
    looks = pictures.run_styles(runs)
    with plot_style():
        shown = [
            {
                "title": board.title,
                "board": board,
                "table": tables.leaderboard(board),
                "ranks": pictures.ranking(board, looks, number),
                "curves": pictures.curves(board, looks, number),
                "time": pictures.score_for_time(board, looks, number),
            }
            for number, board in enumerate(boards, start=1)
        ]
    content: dict[str, object] = {
        "boards": shown,
        "apart": apart,
        "runs": tables.side_by_side(runs),
        "settings": tables.settings(runs),
        "versions": tables.versions(runs),
    }
    html = _templates()
    sections = [
        {"id": name, "title": name.title(), "text": Markup(_section(html, name).render(content))}
        for name in ("leaderboard", "training", "runs", "differences")
    ]
    page = html.get_template("comparison/page.html.j2").render(
        mark=Markup(_MARK),
        title=f"{counted(len(runs), 'run')} of {_tables(runs)}",
        facts=_facts(runs),
        sections=sections,
        version=__version__,
        **dress(html),
    )
    write_text(out, page)
    return out


@cache
def _templates() -> Environment:
    return environment(PrefixLoader({"comparison": PackageLoader("sparkgpu.comparison", "")}))


def _section(html: Environment, name: str) -> Template:
    return html.get_template(f"comparison/{name}.html.j2")


def _tables(runs: Sequence[Compared]) -> str:
    names = dict.fromkeys(clean(short_source(run.results.data.source)) for run in runs)
    return listed(names, most=3)


def _facts(runs: Sequence[Compared]) -> list[Fact]:
    wall = sum(run.results.run.wall_s for run in runs)
    hours = sum(run.results.cost.device_hours for run in runs)
    return [
        Fact(name="runs", text=listed((clean(run.name) for run in runs), most=4)),
        Fact(name="models", text=str(sum(len(run.results.models) for run in runs))),
        Fact(name="wall time of all", text=seconds_text(wall)),
        Fact(name="device time of all", text=seconds_text(3600 * hours)),
    ]
