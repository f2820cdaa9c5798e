"""The engines whose trees need no JVM, by name."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["xgboost", "lightgbm", "catboost"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip(name)
    return name


@pytest.fixture(params=["xgboost", "lightgbm"])
def exact_engine(request: pytest.FixtureRequest) -> str:
    """An engine whose cuts are the best ones; CatBoost adds noise to their gains."""
    name: str = request.param
    pytest.importorskip(name)
    return name
