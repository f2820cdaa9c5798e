"""A figure becomes SVG that follows the page's theme and keeps to itself."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

from sparkgpu.present.figure import Picture, new_figure, plot_style
from sparkgpu.present.style import styles


def drawn(name: str = "lines", label: str = "trees", panels: int = 1) -> Picture:
    with plot_style():
        figures = []
        for _ in range(panels):
            figure, axes = new_figure(4, 3)
            axes.plot([0, 1.23456], [0, 1], color=styles([])["trees"].colour, marker="o", label=label)
            axes.imshow(np.eye(3), extent=(0, 1, 0, 1), interpolation="none")
            axes.legend()
            figures.append(figure)
        return Picture(name=name, caption="What <b> shows.", figures=figures)


def ids(found: Picture) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', found.svg)


def test_colours_follow_the_theme() -> None:
    svg = drawn().svg
    assert "stroke: var(--c-trees)" in svg
    assert "fill: var(--text)" in svg
    assert set(re.findall(r"(?:fill|stroke): (#\w+)", svg)) <= {"#000000"}


def test_ids_are_those_of_the_picture_alone() -> None:
    one, two, three = drawn("one"), drawn("two"), drawn("three", panels=2)
    every = [*ids(one), *ids(two), *ids(three)]
    assert len(every) == len(set(every))
    for found in (one, two, three):
        used = re.findall(r'(?:url\(|href=")#([^")]+)', found.svg)
        assert used
        assert set(used) <= set(ids(found))


def test_the_text_of_a_user_is_shown_as_it_is() -> None:
    label = 'a <script> "id=" 0.123456 $x$ #1c1f23 日本'
    root = ElementTree.fromstring(drawn(label=label).svg)
    assert label in [text for text in ("".join(one.itertext()) for one in root.iter()) if text]


def test_it_has_a_text_alternative_and_no_word_of_its_maker() -> None:
    svg = drawn().svg
    assert svg.startswith('<svg role="img"')
    assert '<title id="lines-1-title">What &lt;b&gt; shows.</title>' in svg
    assert "metadata" not in svg
    assert "atplotlib" not in svg


def test_panels_stand_side_by_side_in_the_png() -> None:
    found = drawn(panels=2)
    assert found.svg.count("<svg") == 2
    assert found.png.startswith(b"\x89PNG")
    widths = [int.from_bytes(one.png[16:20], "big") for one in (found, drawn())]
    assert widths[0] == 2 * widths[1]
