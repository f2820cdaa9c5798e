"""Joining by row_id against a dictionary, and refusing what does not match."""

import numpy as np
import pytest

from sparkgpu.score.predictions import align


def test_values_come_back_in_the_order_of_the_labels():
    rng = np.random.default_rng(1)
    ids = rng.choice(
        2**40, size=2000, replace=False
    )  # sparse, as Spark's monotonically_increasing_id gives them
    wanted, given = rng.permutation(ids), rng.permutation(ids)
    values = rng.random((2000, 3))
    by_id = dict(zip(given.tolist(), values, strict=True))
    expected = np.stack([by_id[i] for i in wanted.tolist()])
    assert np.array_equal(align(wanted, given, values), expected)
    assert np.array_equal(align(wanted, given, values[:, 0]), expected[:, 0])


def test_values_in_the_right_order_are_not_copied():
    values = np.arange(3.0)
    assert align(np.array([4, 2, 9]), np.array([4, 2, 9], dtype=np.int32), values) is values


@pytest.mark.parametrize("given", [[4, 2], [], [1, 2, 3, 4, 5, 6, 7], [4, 3, 2, 1, 1, 1], [1, 2, 2, 9]])
def test_ids_that_do_not_match_are_refused(given):
    with pytest.raises(ValueError, match=f"the {len(given)} predictions do not match the 4 labelled rows"):
        align(np.array([1, 2, 3, 4]), np.array(given, int), np.zeros(len(given)))
