"""The devices on which the tests of the networks run."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Each device a test body runs on."""
    name: str = request.param
    if name != "cpu" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return name
