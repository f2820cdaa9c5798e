"""Where trees and network use a column differently: a plain rule, and a sentence for people."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sparkgpu.rundir.explanations import Importance
from sparkgpu.words import metric_title, number_text

_SPREADS = 2.0
_PART = 0.5
_LEAST_SHARE = 0.03


def differs(column: str, pair: tuple[str, str], found: Mapping[str, Importance], metric: str) -> str | None:
    """The sentence that one model uses `column` more than the other; None if there is no clear difference.

    Shares of all importance are compared, since one model may lose more by every column. The difference is
    clear if it exceeds twice the combined spread of the shuffles and half of the larger share, which is at
    least 3 %.
    """
    if not set(pair) <= found.keys():
        return None
    first, second = sorted(pair, key=lambda name: -found[name].share)
    large, small = found[first], found[second]
    spreads = [_spread_of_share(one) for one in (large, small)]
    if None in spreads or large.share < _LEAST_SHARE:
        return None
    spread = math.hypot(*(one or 0.0 for one in spreads))
    difference = large.share - small.share
    if difference <= max(_SPREADS * spread, _PART * large.share):
        return None
    title = metric_title(metric)
    texts = [
        f"{100 * one.share:.0f} % of its importance, {number_text(one.mean, 2)} {title}"
        for one in (large, small)
    ]
    return f"{column} matters more to {first} ({texts[0]}) than to {second} ({texts[1]})."


def _spread_of_share(one: Importance) -> float | None:
    """The spread in the unit of a share; a column without importance has the share 0 and its own spread."""
    if one.std is None:
        return None
    return one.std * one.share / one.mean if one.mean > 0 and one.share > 0 else 0.0
