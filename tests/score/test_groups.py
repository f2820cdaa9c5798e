"""A planted gap between groups is named with an interval, and a planted proxy of a withheld column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.profile import WithheldColumn
from sparkgpu.core.table.schema import read_schema
from sparkgpu.score.groups import by_group
from sparkgpu.score.metrics import compute
from sparkgpu.score.profile import write_profile
from sparkgpu.score.segments import by_level

ROWS = 2_000


def grouped(seed: int, *, gap: bool):
    """Probabilities that are right in each of three groups or, with a gap, mere noise in the last."""
    random = np.random.default_rng(seed)
    group_N = random.integers(0, 3, ROWS)
    chance_N = random.uniform(0.05, 0.95, ROWS)
    true_N = np.where((group_N == 2) & gap, random.permutation(chance_N), chance_N)
    label_N = (random.random(ROWS) < true_N).astype(int)
    grouping = by_level("shop", ("a", "b", "c"), group_N)
    return label_N, np.column_stack([1 - chance_N, chance_N]), grouping, group_N


def test_a_group_on_which_a_model_is_worse_is_named_with_its_gap() -> None:
    label_N, chance_NC, grouping, group_N = grouped(1, gap=True)
    found = by_group("binary", label_N, chance_NC, "shop", grouping, seed=7)
    assert [one.name for one in found.groups] == ["shop = a", "shop = b", "shop = c"]
    own_N = group_N == 2
    whole = compute("binary", label_N[own_N], chance_NC[own_N])
    assert {name: found.groups[2].metrics[name].value for name in whole} == whole
    gap = found.gaps["roc_auc"]
    assert gap.least == "shop = c" and gap.ci95[0] > 0.1 and gap.ci95[0] < gap.value < gap.ci95[1]
    assert found.gaps["mean_prediction"].ci95[0] < 0


def test_groups_on_which_a_model_is_as_good_have_no_sure_gap() -> None:
    label_N, chance_NC, grouping, _ = grouped(1, gap=False)
    gaps = by_group("binary", label_N, chance_NC, "shop", grouping, seed=7).gaps
    assert all(gaps[name].ci95[0] < 0 < gaps[name].value for name in ("roc_auc", "log_loss", "accuracy"))


@pytest.fixture
def withheld(table: Callable[..., RunPaths]) -> Callable[[pd.DataFrame, str], WithheldColumn]:
    def look(frame: pd.DataFrame, column: str) -> WithheldColumn:
        paths = table(frame, "y")
        schema = read_schema(paths)
        beside = tuple(one for one in schema.features if one.source == column)
        rest = tuple(one for one in schema.features if one not in beside)
        write_json(paths.schema, schema.model_copy(update={"features": rest, "beside": beside}))
        (found,) = write_profile(paths).withheld
        return found

    return look


@pytest.mark.parametrize("kind", ["category", "number", "boolean"])
def test_the_proxy_of_a_withheld_column_is_named(withheld, kind: str) -> None:
    random = np.random.default_rng(3)
    hidden_N = random.normal(size=ROWS) if kind == "number" else random.random(ROWS) < 0.4
    told_N = hidden_N + random.normal(0, 0.2, ROWS)
    frame = pd.DataFrame(
        {"noise": random.normal(size=ROWS), "height": told_N, "more": random.normal(size=ROWS)}
    )
    frame["hidden"] = np.where(hidden_N, "yes", "no") if kind == "category" else hidden_N
    frame["y"] = random.normal(size=ROWS)
    found = withheld(frame, "hidden")
    assert [one.column for one in found.proxies] == ["height"]
    assert found.told > 0.8
    found = withheld(frame.assign(height=random.permutation(told_N)), "hidden")
    assert found.told < 0.05 and found.proxies == ()
