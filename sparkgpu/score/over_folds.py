"""How much of a difference between two models the split decides: the difference in each fold, and its spread.

Limits: folds of about the same size, whose models learned from nearly the same rows. K folds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sparkgpu.score.compare import Interval

_LEVEL = 0.95
_FEWEST = 3


def difference_over_folds(difference_K: Sequence[float]) -> tuple[float, Interval]:
    """The mean difference, and the 95 % interval of what another split would show; two Nones with few folds.

    Training sets overlap, so a mean of K folds varies more than by their variance over K: Nadeau & Bengio
    (2003), "Inference for the generalization error", Machine Learning 52, 239-281, add the share of the rows
    of a fold in those that it did not train, here 1 / (K - 1), and take Student's t with K - 1 degrees.
    """
    from scipy.special import stdtrit  # only runs with folds need it

    num_folds, mean = len(difference_K), float(np.mean(difference_K))
    if num_folds < _FEWEST:
        return mean, (None, None)
    deviation = float(np.std(difference_K, ddof=1)) * math.sqrt(1 / num_folds + 1 / (num_folds - 1))
    half = float(stdtrit(num_folds - 1, 0.5 + _LEVEL / 2)) * deviation
    return mean, (mean - half, mean + half)
