"""The engine of `benchmarks/lanes.py`: H2O's, whose device takes its time and no processor."""

from __future__ import annotations

import os
import time
from typing import Any

from lanes import DEVICE_S

from sparkgpu.h2o.engine import H2OXGBoost


class Sleeping(H2OXGBoost):
    """Grows what it is asked for, a stump, and sleeps for as long as a device would take."""

    def run(self, trial: Any) -> Any:
        record = super().run(trial)
        time.sleep(float(os.environ[DEVICE_S]))
        return record
