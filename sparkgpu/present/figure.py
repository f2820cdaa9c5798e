"""From matplotlib figures to a picture of the report: inline SVG that follows the page's theme, and a PNG.

Figures are drawn in the light colours of `style`; in the SVG each is replaced by its CSS variable. Text
stays text in the page's font: it is laid out in DejaVu Sans, wider than nearly every other font, so it fits.
Limits: figure objects and their canvas only, no pyplot, which would keep every figure alive and look for a
window system; text of users is escaped.
"""

from __future__ import annotations

import base64
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html import escape
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave

from sparkgpu.core.errors import ConfigError
from sparkgpu.present.style import COLOURS, LINE, PAGE, SOFT, TEXT

_DPI = 130
_STYLE: Any = {  # the names of settings are a literal type in some releases of matplotlib
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.edgecolor": SOFT.light,
    "axes.labelcolor": TEXT.light,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.facecolor": PAGE.light,
    "grid.color": LINE.light,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "text.color": TEXT.light,
    "text.parse_math": False,  # a class called "$5 to $10" is not a formula
    "xtick.color": SOFT.light,
    "ytick.color": SOFT.light,
}
_VARIABLES = {ink.light: f"var({ink.variable})" for ink in (PAGE, TEXT, SOFT, LINE, *COLOURS)}


@contextmanager
def plot_style() -> Iterator[None]:
    """The style of all pictures; what matplotlib warns of (a letter that the font lacks) is not for users."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Picture:
    """One or several panels beside each other, each an `<svg>` on the page; `caption` tells what they show.

    A notebook and ``report.md`` show the PNG, on white, which every host and theme can show.
    """

    name: str
    caption: str
    figures: Sequence[Figure]

    @property
    def width(self) -> int:
        """The natural width of the widest panel in CSS pixels."""
        return round(max(figure.get_figwidth() for figure in self.figures) * 96)

    @cached_property
    def svg(self) -> str:
        """All panels, one after the other."""
        with plot_style():
            return "\n".join(
                _svg(figure, f"{self.name}-{number}", self.caption)
                for number, figure in enumerate(self.figures, start=1)
            )

    @cached_property
    def png(self) -> bytes:
        """All panels side by side."""
        with plot_style():
            return _png(self.figures)

    def save(self, file: str | Path) -> Path:
        """Write the PNG to `file`, whose name ends with .png."""
        path = Path(file)
        if path.suffix.lower() != ".png":
            raise ConfigError(f"{file}: the picture is a PNG. Give a name that ends with .png.")
        path.write_bytes(self.png)
        return path

    def __repr__(self) -> str:
        return f"<picture: {self.caption}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/png": base64.b64encode(self.png).decode("ascii"), "text/plain": repr(self)}


def new_figure(width: float, height: float, **margins: float) -> tuple[Figure, Axes]:
    """A figure in inches with one pair of axes; `margins` are inches, too, at each side that needs one.

    Fixed margins, since an automatic layout takes longer than the drawing.
    """
    figure = Figure(figsize=(width, height), dpi=_DPI)
    room = {"left": 0.6, "right": 0.15, "bottom": 0.5, "top": 0.15} | margins
    axes = figure.add_axes(
        (
            room["left"] / width, room["bottom"] / height, 1 - (room["left"] + room["right"]) / width,
            1 - (room["bottom"] + room["top"]) / height,
        )
    )  # fmt: skip
    return figure, axes


def _svg(figure: Figure, name: str, caption: str) -> str:
    title = f"{figure.axes[0].get_title(loc='left')}. {caption}".lstrip(". ")
    written = StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", dpi=_DPI, facecolor="none", metadata={"Date": None})
    text = written.getvalue()
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = _LEFT_OUT.sub("", body)
    body = _TAG.sub(lambda tag: _on_page(tag[0], name), body)
    body = _BETWEEN.sub("><", body).strip()
    width, height = 72 * figure.get_figwidth(), 72 * figure.get_figheight()
    return (
        '<svg role="img" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{width / 0.75:.0f}" viewBox="0 0 {width:g} {height:g}" aria-labelledby="{name}-title" '
        f'stroke-linejoin="round"><title id="{name}-title">{escape(title)}</title>{body}'
    )


_LEFT_OUT = re.compile(
    r"<metadata>.*?</metadata>|<!--.*?-->|<style[^>]*>.*?</style>|<defs>\s*</defs>", re.DOTALL
)
_TAG = re.compile(r"<[^>]+>")
_BETWEEN = re.compile(r">\s+<")
_COLOUR = re.compile(r"(?<=: )#[0-9a-f]{6}")
_DIGITS = re.compile(r"-?\d+\.\d{3,}")
_FAMILY = re.compile(r"font-family: [^;]*; ")
_NO_TURN = re.compile(r' transform="rotate\(-0 [^"]*"')
_GROUP = re.compile(r'<g id="[^"]*"')


def _on_page(tag: str, name: str) -> str:
    """One tag: ids of this picture alone, variables for colours, fewer digits, the font of the page."""
    tag = _GROUP.sub("<g", tag)
    tag = tag.replace(' id="', f' id="{name}-').replace("url(#", f"url(#{name}-")
    tag = tag.replace('href="#', f'href="#{name}-')
    if tag.startswith("<image"):
        tag = tag.replace("<image ", '<image class="pixels" ', 1)
    else:
        tag = _COLOUR.sub(lambda found: _VARIABLES.get(found[0], found[0]), tag)
        tag = _NO_TURN.sub("", _FAMILY.sub("", tag))
        tag = " ".join(tag.split())
    return _DIGITS.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), tag)


def _png(figures: Sequence[Figure]) -> bytes:
    images = []
    for figure in figures:
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        images.append(np.asarray(canvas.buffer_rgba())[:, :, :3])
    height = max(len(image) for image in images)
    padded = [
        np.pad(image, ((0, height - len(image)), (0, 0), (0, 0)), constant_values=255) for image in images
    ]
    written = BytesIO()
    imsave(written, np.concatenate(padded, axis=1), format="png", dpi=_DPI)
    return written.getvalue()
