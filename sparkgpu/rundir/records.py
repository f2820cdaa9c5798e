"""The records that a run leaves as JSON: what they hold is the contract of docs/run-directory.md."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sparkgpu.rundir.files import Record


class FitRecord(Record):
    """``fit.json``: what one trial did, as its engine saw it. Seconds, bytes and rows per second.

    `native_parameters` is what the native library reports that it used, `device_proof` what shows on
    which device it ran; `parameters` are the settings that were asked for, in the engine's spelling.
    """

    trial: str
    engine: str
    fit_s: float
    predict_s: float
    train_rows: int
    train_rows_per_s: float
    peak_host_bytes: int
    peak_device_bytes: int | None = None
    best_iteration: int
    native_parameters: dict[str, str] = Field(default_factory=dict)
    device_proof: dict[str, Any] = Field(default_factory=dict)
    parameters: dict[str, Any] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
