"""Many rows in two dimensions: dots while they are few, else shades of one colour, without stripes.

Values that repeat (a target of few values, prices in steps) leave empty cells between them on an even grid.
So the edges across lie half way between values, and a cell counts its rows per value. N rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from sparkgpu.score.rows import FloatArray

MOST_DOTS = 2500  # up to this many rows dots show more than shades
_VECTOR_DOTS = 300  # up to this many dots are lines of SVG, more are pixels
_CELLS = 64
_PIXELS = 192
_FAINTEST = 0.16


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What the picture shows of one axis; with `log` both ends are above zero."""

    low: float
    high: float
    log: bool = False

    def along(self, value_N: FloatArray) -> FloatArray:
        """0 at the low end, 1 at the high end."""
        if not self.log:
            return (value_N - self.low) / (self.high - self.low)
        positive_N = np.maximum(value_N, np.finfo(float).tiny)
        return np.asarray(np.log(positive_N / self.low) / np.log(self.high / self.low))

    def holds(self, value_N: FloatArray) -> NDArray[np.bool_]:
        return (value_N >= self.low) & (value_N <= self.high)


def frame_of(*values: FloatArray, log: bool = False) -> Frame:
    """Nearly all values: a few extreme ones would squeeze all others into a corner."""
    every = np.concatenate(values)
    if log:
        every = every[every > 0]
    low, high = (float(end) for end in np.quantile(every, (0.001, 0.999)))
    if log:
        margin = (high / low) ** 0.03
        return Frame(low=low / margin, high=high * margin, log=True)
    margin = 0.03 * (high - low) or 0.5 * abs(high) or 1.0
    return Frame(low=low - margin, high=high + margin)


def draw(axes: Axes, x_N: FloatArray, y_N: FloatArray, x: Frame, y: Frame, colour: str) -> int:
    """Fill the axes, set their limits, and return the number of rows outside."""
    seen_N = x.holds(x_N) & y.holds(y_N)
    x_N, y_N = x_N[seen_N], y_N[seen_N]
    if len(x_N) <= MOST_DOTS:
        axes.scatter(
            x_N, y_N, s=9 if len(x_N) <= _VECTOR_DOTS else 6, color=colour, linewidths=0,
            alpha=0.7 if len(x_N) <= _VECTOR_DOTS else 0.4, rasterized=len(x_N) > _VECTOR_DOTS,
        )  # fmt: skip
    else:
        shades = np.zeros((_CELLS, _PIXELS, 4))
        shades[:, :, :3] = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        shades[:, :, 3] = _shades(x.along(x_N), y.along(y_N))
        axes.imshow(
            shades, extent=(0, 1, 0, 1), transform=axes.transAxes, origin="lower", aspect="auto",
            interpolation="none", zorder=1,  # above the grid
        )  # fmt: skip
    if x.log:
        axes.set_xscale("log")
    if y.log:
        axes.set_yscale("log")
    axes.set(xlim=(x.low, x.high), ylim=(y.low, y.high))
    return int((~seen_N).sum())


def edges(along_N: FloatArray, cells: int = _CELLS) -> tuple[FloatArray, FloatArray]:
    """The edges of at most `cells` cells from 0 to 1, and the number of different values in each.

    Every cell between the values holds one if there are few; of many values, the number counts as one
    everywhere.
    """
    even = np.linspace(0.0, 1.0, cells + 1)
    values = np.unique(along_N)
    if len(values) < 2 or len(values) > 4 * cells:
        return even, np.ones(cells)
    middles = (values[1:] + values[:-1]) / 2
    nearest = np.abs(middles[None, :] - even[1:-1, None]).argmin(axis=1)
    first = values[0] - (values[1] - values[0]) / 2
    last = values[-1] + (values[-1] - values[-2]) / 2
    inner = np.unique(np.concatenate([[first, last], middles[nearest]]))
    found = np.unique(np.concatenate([[0.0], np.clip(inner, 0.0, 1.0), [1.0]]))
    return found, np.histogram(values, found)[0].astype(np.float64)


def _shades(x_N: FloatArray, y_N: FloatArray) -> FloatArray:
    """Opacity (cells, pixels) that rises with the logarithm of the rows in a cell; none without rows."""
    x_edges, values = edges(x_N)
    counts = np.histogram2d(y_N, x_N, bins=(np.linspace(0, 1, _CELLS + 1), x_edges))[0]
    logs = np.log1p(counts / np.maximum(values, 1))
    opacity = np.where(counts > 0, _FAINTEST + (1 - _FAINTEST) * logs / logs.max(), 0.0)
    middles = (np.arange(_PIXELS) + 0.5) / _PIXELS
    return np.asarray(opacity[:, np.searchsorted(x_edges, middles) - 1])
