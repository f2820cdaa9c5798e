"""One visual language for pages and pictures: the colours of both, and a look for each model.

The hues are those of Okabe and Ito, which differ for any colour vision, darker on a light page and lighter on
a dark one: each has a contrast of at least 3 to 1 with both pages, and text one of 4.5 to 1. Line style and
marker tell models apart in print. Pictures are drawn in the light colours; on the page, each is the CSS
variable that stands beside it here, so `figure` can turn them dark. The reader's system chooses between light
and dark, unless the switch on the page does; print is light.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

LineStyle = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Ink:
    """A colour by its CSS variable, with its value on a light page and on a dark one."""

    variable: str
    light: str
    dark: str


@dataclass(frozen=True, kw_only=True)
class ModelStyle:
    """How a model looks in every picture."""

    ink: Ink
    dashes: LineStyle
    marker: str

    @property
    def colour(self) -> str:
        """The colour to draw in; on the page it follows the theme."""
        return self.ink.light

    @property
    def line(self) -> dict[str, Any]:
        """How matplotlib draws its lines."""
        return {"color": self.colour, "linestyle": self.dashes}

    @property
    def mark(self) -> dict[str, Any]:
        """How matplotlib draws its points."""
        return {"color": self.colour, "linestyle": "", "marker": self.marker}


PAGE = Ink(variable="--page", light="#ffffff", dark="#161616")
TEXT = Ink(variable="--text", light="#1c1f23", dark="#e6e9ec")
SOFT = Ink(variable="--soft", light="#5b636d", dark="#a3abb5")
LINE = Ink(variable="--line", light="#dfe3e8", dark="#343a42")
"""The neutral colours of page and pictures."""

_BLUE = Ink(variable="--c-trees", light="#0072b2", dark="#56a8e0")
_VERMILION = Ink(variable="--c-neural", light="#d55e00", dark="#ff8c42")
_GREEN = Ink(variable="--c-blend", light="#00845f", dark="#2fc79c")
_PURPLE = Ink(variable="--c-4", light="#b8568f", dark="#e59bc6")
_ORANGE = Ink(variable="--c-5", light="#b37a00", dark="#e9a81c")
GREY = Ink(variable="--c-6", light="#666666", dark="#b4b4b4")
_SKY = Ink(variable="--c-7", light="#2b8fc9", dark="#8fd0f7")
_OLIVE = Ink(variable="--c-8", light="#857a00", dark="#e8dc5a")

COLOURS = (_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, GREY, _SKY, _OLIVE)
"""All hues, the most different first: also for what is no model, such as the phases of a run."""

_DASHES: LineStyle = (0, (5, 1.5))
_DASH_DOT: LineStyle = (0, (5, 1.5, 1, 1.5))
_DOTS: LineStyle = (0, (1, 1.2))
_SHORT_DASHES: LineStyle = (0, (2.5, 1.2))
_DASH_DOTS: LineStyle = (0, (3, 1.2, 1, 1.2, 1, 1.2))

_OWN = {
    "trees": ModelStyle(ink=_BLUE, dashes="-", marker="o"),
    "neural": ModelStyle(ink=_VERMILION, dashes=_DASHES, marker="s"),
    "blend": ModelStyle(ink=_GREEN, dashes=_DASH_DOT, marker="D"),
}
_OTHERS = tuple(
    ModelStyle(ink=ink, dashes=dashes, marker=marker)
    for ink, dashes, marker in (
        (_PURPLE, _DOTS, "^"), (_ORANGE, _SHORT_DASHES, "v"), (GREY, _DASH_DOTS, "P"),
        (_SKY, _DASHES, "X"), (_OLIVE, "-", "<"),
        (_PURPLE, "-", ">"), (_ORANGE, _DASH_DOT, "p"), (GREY, _DASHES, "*"),
        (_SKY, _DOTS, "h"), (_OLIVE, _SHORT_DASHES, "d"),
    )
)  # fmt: skip


def styles(models: Iterable[str]) -> Mapping[str, ModelStyle]:
    """A style for each model of a run, in the run's order: all pictures must be given the same models.

    Models with other names than trees, neural and blend take ten more styles in turn.
    """
    others = [model for model in models if model not in _OWN]
    return _OWN | dict(zip(others, cycle(_OTHERS), strict=False))


PANEL = Ink(variable="--panel", light="#f6f8fa", dark="#20242a")
WARNING_SHADE = Ink(variable="--warning-shade", light="#fff4ea", dark="#2c2119")
TEXTS = (
    TEXT,
    SOFT,
    Ink(variable="--link", light="#0a5ba0", dark="#7cc4f2"),
    Ink(variable="--best", light="#005a8f", dark="#7cc4f2"),
    Ink(variable="--warning", light="#8a3c00", dark="#ffb27a"),
    Ink(variable="--good", light="#1a6b3c", dark="#7fd6a4"),
)
_PAGE_INKS = (PAGE, PANEL, WARNING_SHADE, LINE, *TEXTS, *COLOURS)


def variables() -> str:
    """The CSS rules that set them for each theme; pixels in pictures are brighter on a dark page."""
    light = " ".join(f"{ink.variable}: {ink.light};" for ink in _PAGE_INKS) + " --pixels: none;"
    dark = " ".join(f"{ink.variable}: {ink.dark};" for ink in _PAGE_INKS) + " --pixels: brightness(1.6);"
    return "\n".join(
        (
            f":root {{ color-scheme: light dark; {light} }}",
            f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}",
            f":root[data-theme=light] {{ color-scheme: light; {light} }}",
            f":root[data-theme=dark] {{ color-scheme: dark; {dark} }}",
            f"@media print {{ :root, :root[data-theme] {{ color-scheme: light; {light} }} }}",
        )
    )
