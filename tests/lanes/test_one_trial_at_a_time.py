"""Scores are computed with the predictions of few trials in memory, however many there are."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_run import MadeRun

from sparkgpu.runs import evaluate


@pytest.mark.parametrize("folds", [None, 6])
def test_the_predictions_of_earlier_trials_are_released(
    folds: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = evaluate.trial_predictions
    earlier: list[weakref.ref[np.ndarray]] = []
    alive: list[int] = []

    def watched(*these: Any) -> Any:
        alive.append(sum(array() is not None for array in earlier))
        found = read(*these)
        earlier.extend(weakref.ref(array) for array in found.values())
        return found

    monkeypatch.setattr(evaluate, "trial_predictions", watched)
    run = MadeRun("binary", folds)
    if folds is None:
        run.predicted |= {f"trees-{number}": run.predicted["trees-0"] for number in range(2, 7)}
    run.evaluated(tmp_path)
    assert len(alive) == len(run.predicted)
    assert max(alive) <= 4  # validation and test rows of the first trial and of the newest
