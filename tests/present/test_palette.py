"""The colours of the pictures can be seen and told apart, on a light page and on a dark one."""

from __future__ import annotations

import re

import pytest

from sparkgpu.present import style


def luminance(colour: str) -> float:
    """Relative luminance as the Web Content Accessibility Guidelines define it."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("ink", style.COLOURS, ids=lambda ink: ink.variable)
def test_a_colour_stands_out_on_both_pages(ink: style.Ink) -> None:
    assert contrast(ink.light, style.PAGE.light) >= 3
    assert contrast(ink.dark, style.PAGE.dark) >= 3
    assert contrast(ink.light, style.PAGE.dark) >= 3  # pixels inside a picture do not follow the theme


def test_thirteen_models_look_different_in_colour_and_in_print() -> None:
    names = ["trees", "neural", "blend", *(f"model {number}" for number in range(10))]
    found = style.styles(names)
    assert len({(found[name].ink, found[name].dashes) for name in names}) == len(names)
    assert len({found[name].marker for name in names}) == len(names)


def test_a_model_looks_the_same_whatever_other_models_there_are() -> None:
    assert style.styles(["mine", "trees"])["trees"] == style.styles(["trees", "a", "b"])["trees"]


def test_each_colour_has_a_value_for_every_theme() -> None:
    rules = style.variables()
    for ink in (style.PAGE, style.TEXT, *style.COLOURS):
        values = re.findall(rf"{ink.variable}: (#\w{{6}});", rules)
        assert values == [ink.light, ink.dark, ink.light, ink.dark, ink.light]  # the last one is for print


@pytest.mark.parametrize("ink", style.TEXTS, ids=lambda ink: ink.variable)
def test_text_can_be_read_on_every_ground(ink: style.Ink) -> None:
    for ground in (style.PAGE, style.PANEL, style.WARNING_SHADE):
        assert contrast(ink.light, ground.light) >= 4.5
        assert contrast(ink.dark, ground.dark) >= 4.5
