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
    clear if it exceeds half of the larger share, which is at least 3 %, and if it exceeds twice the combined
    spread of the shuffles, in shares and in the metric itself.
    """
    if not set(pair) <= found.keys():
        return None
    first, second = sorted(pair, key=lambda name: -found[name].share)
    large, small = found[first], found[second]
    if large.std is None or small.std is None or large.share < _LEAST_SHARE:
        return None
    in_shares, in_metric = large.share - small.share, large.mean - small.mean
    spread = math.hypot(large.std, small.std)
    spread_of_shares = math.hypot(_spread_of_share(large), _spread_of_share(small))
    if in_shares <= max(_SPREADS * spread_of_shares, _PART * large.share) or in_metric <= _SPREADS * spread:
        return None
    title = metric_title(metric)
    texts = [
        f"{100 * one.share:.0f}\N{NO-BREAK SPACE}% of its importance, {number_text(one.mean, 2)} {title}"
        for one in (large, small)
    ]
    return f"{column} matters more to {first} ({texts[0]}) than to {second} ({texts[1]})."


def _spread_of_share(one: Importance) -> float:
    """The spread in the unit of a share; 0 for a column without importance."""
    return one.std * one.share / one.mean if one.std is not None and one.mean > 0 else 0.0
