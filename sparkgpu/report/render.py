"""Builds ``report/`` from the run directory alone: the page, the same in Markdown, ``metrics.csv``, pictures.

Limits: all text from the user's data is escaped, in HTML and in Markdown. The page contains its style and
pictures and loads nothing from the network. Files are complete or absent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from jinja2 import Environment, TemplateNotFound
from markupsafe import Markup

from sparkgpu.plan.plan import Plan
from sparkgpu.report import cards, header, tables
from sparkgpu.report.curves import read_test
from sparkgpu.report.figure import Picture, plot_style
from sparkgpu.report.frame import dress, environment
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.sections import SECTIONS, Content, Section
from sparkgpu.report.standing import UNREADABLE
from sparkgpu.report.unfinished import check_is_run, sections, unfinished_page
from sparkgpu.rundir.files import read_record, write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.results import read_results
from sparkgpu.table.schema import read_schema

PICTURES = (
    "leaderboard", "roc_curves", "confusion_matrix", "predicted_vs_true", "reliability", "learning_curves",
    "timings",
)  # fmt: skip


def build(paths: RunPaths, explained: Callable[[], None] = lambda: None) -> Path:
    """Write the whole report again and return the path of ``index.html``.

    `explained` waits for the models' explanations; it is called when the sections without them are made.

    Reads ``metrics.json``, ``plan.json``, the table's schema and test labels, and the files of the trials. If
    predictions or learning curves are missing, only their picture is missing. A run without results gets a
    page of its own: what happened, and what stands. Raises `ConfigError` if the folder holds no run.
    """
    check_is_run(paths)
    run, missing = _read(paths)
    if run is None:
        explained()
        return _build_unfinished(paths, missing)
    with plot_style():
        made = {section.id: section.content(run) for section in SECTIONS if not section.explains}
        explained()
        made |= {section.id: section.content(run) for section in SECTIONS if section.explains}
    contents = [(section, content) for section in SECTIONS if (content := made[section.id])]
    pictures = {
        value.name: value
        for _, content in contents
        for value in content.values()
        if isinstance(value, Picture)
    }
    for picture in PICTURES:
        if picture in pictures and pictures[picture].png:
            _write_bytes(paths.report / f"{picture}.png", pictures[picture].png)
        else:
            (paths.report / f"{picture}.png").unlink(missing_ok=True)  # left by an earlier report
    write_text(paths.report / "metrics.csv", tables.metrics_csv(run.results))
    html = environment()
    markdown = _markdown_templates()
    frame = {
        "title": header.title(run),
        "run": run.results.run.name,
        "facts": header.facts(run),
        "version": run.results.run.sparkgpu,
    }
    write_text(
        paths.report / "report.md",
        markdown.get_template("report.md.j2").render(
            frame,
            sections=[_rendered(markdown, section, content, "md") for section, content in contents],
        ),
    )
    for model, card in cards.contents(run).items():
        write_text(cards.card_path(paths, model), markdown.get_template("card.md.j2").render(card))
    page = paths.report / "index.html"
    write_text(
        page,
        html.get_template("report.html.j2").render(
            frame,
            sections=[_rendered(html, section, content, "html") for section, content in contents],
            **dress(html),
        ),
    )
    return page


def _read(paths: RunPaths) -> tuple[Inputs | None, str]:
    """The inputs of the whole page or, without them, the name of the first file that is missing."""
    for needed, read in ((paths.metrics, read_results), (paths.plan, _plan), (paths.schema, read_schema)):
        try:
            read(paths)
        except UNREADABLE:
            return None, str(needed.relative_to(paths.root))
    results, schema = read_results(paths), read_schema(paths)
    try:
        test = read_test(paths, schema, results)
    except UNREADABLE:
        return None, str(paths.split("test").relative_to(paths.root))
    return Inputs(paths=paths, results=results, schema=schema, plan=_plan(paths), test=test), ""


def _plan(paths: RunPaths) -> Plan:
    return read_record(paths.plan, Plan)


def _build_unfinished(paths: RunPaths, missing: str) -> Path:
    """The page of a run without results, or without a file that its page needs; and the same in Markdown."""
    values = unfinished_page(paths, missing)
    html = environment()
    markdown = _markdown_templates()
    for left in ("metrics.csv", *(f"{name}.png" for name in PICTURES)):
        (paths.report / left).unlink(missing_ok=True)  # of an earlier report
    write_text(
        paths.report / "report.md",
        markdown.get_template("report.md.j2").render(values, sections=sections(markdown, values, "md")),
    )
    page = paths.report / "index.html"
    write_text(
        page,
        html.get_template("report.html.j2").render(
            values, sections=sections(html, values, "html"), **dress(html)
        ),
    )
    return page


def _rendered(templates: Environment, section: Section, content: Content, kind: str) -> dict[str, object]:
    """A section's heading and its text, from its template of this kind; no text without a template."""
    template = f"sections/{section.id}.{kind}.j2"
    try:
        text = templates.get_template(template).render(content)
    except TemplateNotFound as missing:
        if missing.name != template:
            raise
        text = ""
    return {"id": section.id, "title": section.title, "text": Markup(text)}


@cache
def _markdown_templates() -> Environment:
    return environment().overlay(finalize=_markdown)


def _markdown(value: object) -> Markup:
    """Escape text so that Markdown shows it literally, on one line; a macro's output is Markdown already."""
    if isinstance(value, Markup):
        return value
    text = " ".join(str(value).split())
    text = re.sub(r"([\\`*\[\]|~])", r"\\\1", text)
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # inside a word an underscore has no meaning
    return Markup(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def _write_bytes(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
