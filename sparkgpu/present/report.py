"""Builds ``report/`` from the run directory alone: the page, the same in Markdown, ``metrics.csv``, pictures.

Limits: all text from the user's data is escaped, in HTML and in Markdown. The page contains its style and
pictures and loads nothing from the network. Files are complete or absent. Importing this loads matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.rundir.files import UNREADABLE, read_record, write_bytes, write_text
from sparkgpu.core.rundir.metrics_json import read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import read_schema
from sparkgpu.present import cards, data_tables, result_tables, style, unfinished
from sparkgpu.present.figure import Picture, plot_style
from sparkgpu.present.pictures.shared import MOST_ROWS
from sparkgpu.present.sections import SECTIONS, Inputs, facts
from sparkgpu.present.table_model import escape_markdown, html, markdown
from sparkgpu.score.metrics import check_installed
from sparkgpu.score.predictions import predictions_of_models

SAVED = (
    "leaderboard", "roc_curves", "confusion_matrix", "predicted_vs_true", "reliability", "learning_curves",
    "timings", "thresholds",
)  # fmt: skip
"""The pictures that are files, too, and that ``report.md`` shows."""

Kind = Literal["html", "md"]


def build(paths: RunPaths, explained: Callable[[], None] = lambda: None) -> Path:
    """Write the whole report again and return the path of ``index.html``.

    `explained` waits for the models' explanations; it is called when the sections without them are made.

    Reads ``metrics.json``, ``plan.json``, the table's schema and test labels, and the files of the trials. If
    predictions or learning curves are missing, only their picture is missing. A run without results gets a
    page of its own: what happened, and what stands. Raises `ConfigError` if the folder holds no run.
    """
    unfinished.check_is_run(paths)
    run, missing = _read(paths)
    if run is not None:
        check_installed(run.results.comparison.metric, paths.root)
    with plot_style():
        if run is None:
            explained()
            (paths.report / "metrics.csv").unlink(missing_ok=True)  # left by an earlier report
            values = unfinished.page(paths, missing)
            return _write(paths, values, {"happened": ("unfinished", "What happened", values)})
        made = {section.id: section.content(run) for section in SECTIONS if not section.explains}
        for picture in _pictures(filter(None, made.values())):
            _draw(picture)  # now, while the models are explained in another process
        explained()
        made |= {section.id: section.content(run) for section in SECTIONS if section.explains}
    write_text(paths.report / "metrics.csv", result_tables.metrics_csv(run.results))
    for model, card in cards.contents(run).items():
        write_text(cards.card_path(paths, model), templates("md").get_template("card.md.j2").render(card))
    about = run.results.run
    frame = {
        "title": data_tables.title_of(run.schema),
        "run": about.name,
        "facts": facts(run),
        "version": about.sparkgpu,
    }
    sections = {s.id: (s.id, s.title, content) for s in SECTIONS if (content := made[s.id])}
    return _write(paths, frame, sections)


def _read(paths: RunPaths) -> tuple[Inputs | None, str]:
    """The inputs of the whole page or, without them, the name of the first file that is missing."""
    needed = paths.metrics
    try:
        results = read_results(paths)
        needed = paths.plan
        plan = read_record(paths.plan, Plan)
        needed = paths.schema
        schema = read_schema(paths)
        needed = paths.split("test")
        test = predictions_of_models(paths, schema, results, "test", MOST_ROWS)
    except UNREADABLE:
        return None, str(needed.relative_to(paths.root))
    return Inputs(paths=paths, results=results, schema=schema, plan=plan, test=test), ""


def _write(
    paths: RunPaths,
    frame: Mapping[str, object],
    sections: Mapping[str, tuple[str, str, Mapping[str, object]]],
) -> Path:
    """Write the pictures and both pages; a section is its template, its heading and its values, by its id."""
    pictures = {one.name: one for one in _pictures(content for _, _, content in sections.values())}
    for name in SAVED:
        if name in pictures:
            write_bytes(paths.report / f"{name}.png", pictures[name].png)
        else:
            (paths.report / f"{name}.png").unlink(missing_ok=True)  # left by an earlier report
    page = paths.report / "index.html"
    kinds: tuple[tuple[Kind, Path], ...] = (("md", paths.report / "report.md"), ("html", page))
    for kind, file in kinds:
        shown = [
            (name, heading, render(f"{template}.{kind}.j2", kind, content))
            for name, (template, heading, content) in sections.items()
        ]
        write_text(file, page_of(f"report.{kind}.j2", kind, frame, shown))
    return page


def _pictures(contents: Iterable[Mapping[str, object]]) -> Iterator[Picture]:
    """The pictures among the values of sections, alone or in lists."""
    for content in contents:
        for value in content.values():
            yield from (
                one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Picture)
            )


def _draw(picture: Picture) -> None:
    """Draw what the report shows of a picture, which keeps it until it is written."""
    _ = picture.svg, picture.name in SAVED and picture.png


def page_of(
    template: str, kind: Kind, frame: Mapping[str, object], sections: Iterable[tuple[str, str, Markup]]
) -> str:
    """The page of sections, each with its id, its heading and its text."""
    return render(
        template, kind,
        {**frame, "sections": [{"id": name, "title": title, "text": text} for name, title, text in sections]},
    )  # fmt: skip


def render(template: str, kind: Kind, values: Mapping[str, object]) -> Markup:
    return Markup(templates(kind).get_template(template).render(values))


@cache  # a process that makes several pages compiles each template once
def templates(kind: Kind) -> Environment:
    """The templates of pages; values are escaped, in Markdown as Markdown needs it."""
    found = Environment(
        loader=PackageLoader("sparkgpu.present", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=escape_markdown if kind == "md" else None,
    )  # fmt: skip
    folder = Path(__file__).parent / "templates"
    css, script = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    found.globals |= {
        "table": markdown if kind == "md" else html,
        "style": Markup(f"{style.variables()}\n{css}"),
        "script": Markup(script),
        "saved": SAVED,
    }
    return found
