"""Numbers, times and names as text."""

from __future__ import annotations

import pytest

from sparkgpu.core.words import number_text, seconds_text, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.8, "0.8000"), (12.3456, "12.35"), (1234567.8, "1,234,568"), (0.000012345, "1.234e-05"), (0.0, "0"),
     (-0.5, "-0.5000"), (0.99999, "1.000"), (9999.9, "10,000"), (None, "–"), (float("nan"), "–")],
)  # fmt: skip
def test_numbers_have_four_significant_digits(value: float | None, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("value", "text", "of_a_column"),
    [(1998, "1,998", "1998"), (11880, "11,880", "11,880"), (-97444, "-97,444", "-97,444"), (3, "3", "3"),
     (1103.69, "1,103.7", "1103.7"), (0.852504, "0.8525", "0.8525"), (1e6, "1,000,000", "1,000,000")],
)  # fmt: skip
def test_values_are_whole_or_have_five_digits_and_years_no_separator(
    value: float, text: str, of_a_column: str
) -> None:
    assert (value_text(value), value_text(value, 1e4)) == (text, of_a_column)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (3.14, "3.1 s"), (75, "75 s"), (125, "2:05 min"), (3725, "1:02:05 h")],
)
def test_durations_have_units(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
