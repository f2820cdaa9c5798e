"""The numeric transform against scikit-learn's, and where it differs on purpose."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.preprocessing import QuantileTransformer

from sparkgpu.neural import preprocess
from sparkgpu.neural.preprocess import QuantileNormal, RobustClip


def fitted(raw_NF: torch.Tensor) -> QuantileNormal:
    return QuantileNormal.fit(raw_NF, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rows", [200, 3_000, 45_000])
def test_a_random_column_maps_as_scikit_learn_maps_it(rows: int, device: str) -> None:
    random = np.random.default_rng(1)
    train = random.lognormal(0.0, 1.5, (rows, 1)).astype(np.float32)
    new = random.lognormal(0.0, 2.5, (2_000, 1)).astype(np.float32)  # beyond the training range as well
    knots = max(min(rows // 30, 1000), 10)
    theirs = QuantileTransformer(n_quantiles=knots, output_distribution="normal", subsample=10**9).fit(train)
    ours = fitted(torch.from_numpy(train).to(device))
    found = ours(torch.from_numpy(new).to(device)).cpu().numpy()
    np.testing.assert_allclose(found, theirs.transform(new), atol=2e-3)


def test_ties_inside_a_column_get_their_middle_rank_as_in_scikit_learn() -> None:
    random = np.random.default_rng(2)
    train = np.concatenate([random.normal(size=2_000), np.full(1_000, 0.25)]).astype(np.float32)[:, None]
    theirs = QuantileTransformer(n_quantiles=100, output_distribution="normal", subsample=10**9).fit(train)
    found = fitted(torch.from_numpy(train))(torch.from_numpy(train)).numpy()
    np.testing.assert_allclose(found, theirs.transform(train), atol=2e-3)


def test_ties_at_the_ends_stay_near_the_middle() -> None:
    raw_NF = torch.zeros(3_000, 1)
    raw_NF[:300] = 1.0
    found = fitted(raw_NF)(torch.tensor([[0.0], [1.0], [-9.0], [9.0]])).flatten()
    # The middle ranks of nine tenths and of the last tenth: the normal's quantiles at .45 and .95.
    np.testing.assert_allclose(found, [-0.126, 1.645, -0.126, 1.645], atol=0.06)


def test_missing_becomes_zero_and_an_indicator_only_where_training_had_gaps(device: str) -> None:
    raw_NF = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    raw_NF[::7, 1] = float("nan")
    transform = fitted(raw_NF.to(device))
    assert transform.missing_M.tolist() == [1] and transform.num_outputs == 4
    gaps = torch.full((1, 3), float("nan"), device=device)
    assert transform(gaps).tolist() == [[0.0, 0.0, 0.0, 1.0]]
    assert transform(raw_NF.to(device))[:, 3].tolist() == [float(i % 7 == 0) for i in range(500)]


def test_columns_that_are_constant_missing_infinite_short_or_absent_do_no_harm() -> None:
    infinity = float("inf")
    raw_NF = torch.tensor([[5.0, float("nan"), infinity], [5.0, float("nan"), -infinity]] * 50)
    raw_NF[::10, 2] = 1.0
    found = fitted(raw_NF)(torch.tensor([[5.0, 1.0, infinity], [6.0, float("nan"), -infinity]]))
    assert found.isfinite().all()
    assert found[:, :2].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert found[0, 2] > 0 > found[1, 2]
    two = fitted(torch.tensor([[1.0], [2.0]]))(torch.tensor([[1.0], [1.5], [2.0]]))
    np.testing.assert_allclose(two.flatten(), [-5.199, 0.0, 5.199], atol=1e-3)
    assert fitted(torch.empty(20, 0)).transform(torch.empty(20, 0)).shape == (20, 0)


def test_a_value_that_a_sample_would_miss_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocess, "_SAMPLE_ROWS", 1_000)
    raw_NF = torch.zeros(50_000, 1)
    raw_NF[123] = 1.0
    found = fitted(raw_NF)(torch.tensor([[0.0], [1.0]])).flatten()
    assert abs(found[0]) < 0.01 and found[1] > 3


def test_the_whole_matrix_is_transformed_as_its_rows_are_and_in_place_where_it_fits(device: str) -> None:
    raw_NF = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0)).to(device)
    transform = fitted(raw_NF)
    expected = transform(raw_NF)
    assert transform.transform(raw_NF) is raw_NF and torch.equal(raw_NF, expected)


def test_robust_clip_measures_in_quartiles_from_the_median_and_bends_what_is_far(device: str) -> None:
    raw = torch.linspace(0.0, 100.0, 4001, device=device).unsqueeze(1)
    found = RobustClip.fit(raw, generator=torch.Generator().manual_seed(0))
    x = torch.tensor([50.0, 75.0, 100.0, 1e30, float("nan")], device=device).unsqueeze(1)
    expected = [0.0, 0.5 / (1 + (0.5 / 3) ** 2) ** 0.5, 1.0 / (1 + 1 / 9) ** 0.5, 3.0, 0.0]
    torch.testing.assert_close(found(x).flatten().cpu(), torch.tensor(expected), atol=2e-3, rtol=0)


def test_robust_clip_scales_a_rare_value_by_the_range_and_leaves_a_constant_at_zero() -> None:
    rare = torch.tensor([0.0] * 950 + [4.0] * 50).unsqueeze(1)
    found = RobustClip.fit(rare, generator=torch.Generator().manual_seed(0))
    assert found(torch.tensor([[0.0], [4.0]])).flatten().tolist() == pytest.approx(
        [0.0, 2 / (1 + 4 / 9) ** 0.5]
    )
    constant = RobustClip.fit(torch.full((100, 1), 7.0), generator=torch.Generator().manual_seed(0))
    assert constant(torch.tensor([[7.0], [9.0]])).flatten().tolist() == [0.0, 0.0]


def test_robust_clip_tells_missing_apart() -> None:
    raw = torch.tensor([[1.0], [float("nan")], [3.0], [5.0]] * 20)
    found = RobustClip.fit(raw, generator=torch.Generator().manual_seed(0))
    assert found(raw[:2]).shape == (2, 2) and found(raw[1:2]).tolist() == [[0.0, 1.0]]
