"""Packages that learners import where they find them, for functions that a run never calls.

xgboost, lightgbm and H2O's client load scikit-learn and matplotlib, a second of processor time each.
Limit: engines of other packages may need them, and then they are loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

_OWN_ENGINES = frozenset({"h2o-xgboost", "xgboost", "lightgbm", "catboost", "torch"})
_UNUSED = ("sklearn", "matplotlib")


def leave_out_unused_packages(engines: Iterable[str]) -> None:
    """Make this process do without what `engines` would load in vain; call it before they are imported."""
    if need_no_others(engines):
        for name in _UNUSED:
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # its import then fails


def need_no_others(engines: Iterable[str]) -> bool:
    """Whether all `engines` are our own, which train and predict without those packages."""
    return _OWN_ENGINES.issuperset(engines)
