"""What every page of ours is made with: the templates, the style and the script."""

from __future__ import annotations

from functools import cache

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sparkgpu.report import theme


@cache  # a process that makes several pages compiles each template once
def environment(*more: BaseLoader) -> Environment:
    """The templates of this package, and those of `more` loaders; values are escaped."""
    return Environment(
        loader=ChoiceLoader([PackageLoader("sparkgpu.report", ""), *more]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def dress(html: Environment) -> dict[str, Markup]:
    """The values `style` and `script` of ``report.html.j2``."""
    return {
        "style": Markup(theme.style() + "\n" + _source(html, "report.css")),
        "script": Markup(_source(html, "report.js")),
    }


def _source(html: Environment, name: str) -> str:
    assert html.loader
    return html.loader.get_source(html, name)[0]
