"""The calibration of a run's models: a temperature for each trial, and its effect on the test rows.

N test rows, C classes.
"""

from __future__ import annotations

import numpy as np

from sparkgpu.rundir.results import CalibrationResult
from sparkgpu.score.calibration import brier_score, calibration_error, scaled, temperature
from sparkgpu.score.predictions import Labels, Mean
from sparkgpu.score.rows import FloatArray, Task


class Calibration:
    """The calibration of one model, whose predictions are the mean over its trials; only sums are kept."""

    def __init__(self, task: Task, test: Labels) -> None:
        self._task = task
        self._test = test
        self._temperatures: list[float] = []
        self._before = Mean()
        self._after = Mean()

    def add(self, temperature_: float, test_NC: FloatArray) -> None:
        """Add a trial: its temperature, and its probabilities of the test rows before it is applied."""
        self._temperatures.append(temperature_)
        self._before.add(test_NC)
        self._after.add(scaled(test_NC, temperature_))

    def fit(self, valid: Labels, valid_NC: FloatArray, test_NC: FloatArray) -> None:
        """Add a trial with the temperature that fits the validation rows best."""
        self.add(temperature(self._task, valid.label_N, valid_NC, valid.weight_N), test_NC)

    def result(self, *, applied: bool) -> CalibrationResult:
        task, test = self._task, self._test
        before_NC, after_NC = self._before.value(), self._after.value()
        return CalibrationResult(
            temperature=float(np.mean(self._temperatures)),
            error_before=calibration_error(task, test.label_N, before_NC, test.weight_N),
            error_after=calibration_error(task, test.label_N, after_NC, test.weight_N),
            brier_before=brier_score(task, test.label_N, before_NC, test.weight_N),
            brier_after=brier_score(task, test.label_N, after_NC, test.weight_N),
            applied=applied,
        )
