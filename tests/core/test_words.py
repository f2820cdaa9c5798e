"""Numbers, times and names as text."""

from __future__ import annotations

import pytest

from sparkgpu.core.words import number_text, seconds_text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.8, "0.8000"), (12.3456, "12.35"), (1234567.8, "1,234,568"), (0.000012345, "1.234e-05"), (0.0, "0"),
     (-0.5, "-0.5000"), (None, "–"), (float("nan"), "–")],
)  # fmt: skip
def test_numbers_have_four_significant_digits(value: float | None, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (3.14, "3.1 s"), (75, "75 s"), (125, "2:05 min"), (3725, "1:02:05 h")],
)
def test_durations_have_units(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
