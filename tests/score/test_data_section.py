"""The report's section on the table: checks, columns and their pictures, for any text and many columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.present.report import build
from sparkgpu.score.profile import write_profile

MakeTable = Callable[..., RunPaths]
LANE = LanePlan(
    index=0, device="cpu", cuda_visible_devices="", device_name="CPU", threads=1, tree_threads=1,
    neural_threads=1, heap_bytes=1, port_base=1,
)  # fmt: skip


def reported(paths: RunPaths, *, with_profile: bool = True) -> tuple[str, str]:
    """The page's section of the table, and ``report.md``."""
    write_json(paths.plan, Plan(preset="fast", lanes=(LANE,), trials=(), reasons={}))
    if with_profile:
        write_profile(paths)
    html = build(paths).read_text(encoding="utf-8")
    (section,) = re.findall(r'<section[^>]*id="data".*?</section>', html, re.DOTALL)
    return section, (paths.report / "report.md").read_text(encoding="utf-8")


def text(html: str) -> str:
    """The text of a piece of HTML."""
    return unescape(re.sub(r"<[^>]*>", "", html))


def frame(rows: int = 600) -> pd.DataFrame:
    random = np.random.default_rng(0)
    x_N = random.normal(size=rows)
    word_N = np.where(x_N + random.normal(size=rows) > 0, "<b>up</b>", "a|b")
    return pd.DataFrame({"x": x_N, "<script>": word_N, "leak": 3 * x_N, "y": 9 * x_N})


DOUBTS = "The table raises doubts about these figures: leakage (see Data)."


def test_failed_checks_stand_first_and_beside_the_verdict_if_they_touch_its_figures(table: MakeTable) -> None:
    paths = table(frame(), best={"rmse": 0.01})
    section, markdown = reported(paths)
    items = re.findall(r'<li class="(passed|failed)">(.*?)</li>', section, re.DOTALL)
    assert [state for state, _ in items] == ["failed"] + 4 * ["passed"]
    assert "!leakage failedAlone, these explain" in text(items[0][1])
    assert "1 of 5 checks of the table failed: leakage." in text(section)
    lines = [line for line in markdown.splitlines() if line.startswith(("- !", "- ✓"))]
    assert lines[0].startswith("- ! leakage failed: Alone, these explain") and len(lines) == 5
    assert DOUBTS in (paths.report / "index.html").read_text(encoding="utf-8")


def test_columns_have_histograms_pairs_a_picture_and_texts_are_literal(table: MakeTable) -> None:
    noise_N = np.random.default_rng(1).normal(size=600)
    paths = table(frame().drop(columns=["leak"]).assign(x=noise_N), best={"rmse": 0.01})
    section, _ = reported(paths)
    assert "raises doubts" not in (paths.report / "index.html").read_text(encoding="utf-8")
    assert not re.search("<(script|b)>", section)
    assert "<script>" in text(section) and "<b>up</b> 5" in text(section) and "a|b" in text(section)
    rows = re.findall(r'<tr><th scope="row".*?</tr>', section, re.DOTALL)
    titles = [re.sub(r"<.*?>", "", row.split("</th>")[0]) for row in rows if "<svg" in row]
    assert titles[0] == "y (target)" and set(titles[1:]) == {"x", "&lt;script&gt;"}
    assert all(re.search(r'<path d="M0 22v-[\d.]+h[^"]+z"', row) for row in rows if "<svg" in row)
    assert "Associations of pairs of columns" in section and "y (target)" in section


def test_without_a_profile_the_section_says_what_the_schema_says(table: MakeTable) -> None:
    section, markdown = reported(table(frame(), best={"rmse": 0.01}), with_profile=False)
    assert "3 features" in text(section) and "train" in text(section)
    assert "checks" not in section and "| train |" in markdown


def test_a_boolean_is_shown_by_its_words(table: MakeTable) -> None:
    flag_N = np.arange(600) % 4 == 0
    section, _ = reported(table(frame().assign(flag=flag_N), best={"rmse": 0.01}))
    (row,) = (text(row) for row in re.findall(r"<tr>.*?</tr>", section) if ">flag<" in row)
    assert re.fullmatch(r"flagboolean–2.*false 7\d %, true 2\d %", row)


@pytest.mark.parametrize("columns", [75, pytest.param(1_000, marks=pytest.mark.slow)])
def test_of_many_columns_the_first_sixty_are_shown_and_the_page_stays_small(
    table: MakeTable, columns: int
) -> None:
    random = np.random.default_rng(0)
    wide = pd.DataFrame(
        random.normal(size=(300, columns)),
        columns=[f"a rather long name of column {i}" for i in range(columns)],
    )
    paths = table(wide.assign(y=random.normal(size=300)), best={"rmse": 1.0})
    section, _ = reported(paths)
    shown = min(columns, 60) + 1
    assert len(re.findall('<svg class="bars"', section)) == shown
    assert len(section) < 400_000 and Path(paths.report / "index.html").stat().st_size < 1_000_000
