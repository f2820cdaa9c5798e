"""How tests draw cases: the same in every run, and told as they were drawn."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings


def drawn(number: int) -> settings:
    """So many cases."""
    return settings(
        max_examples=number, derandomize=True, deadline=None, database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )  # fmt: skip
