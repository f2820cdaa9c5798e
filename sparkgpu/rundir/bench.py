"""``bench.json``: what ``sparkgpu bench`` measured, in a folder of its own or in that of a run."""

from __future__ import annotations

from typing import Literal

from sparkgpu.rundir.files import Record


class BenchRow(Record):
    """One configuration.

    `time_s` is that of one pass over the training rows, for each network. `speed_up` compares rows per
    second with the first row of the table, and `efficiency` divides it by the devices. `device_hours` and
    `price` are for one pass and one network. `is_simulated` rows come from the model of
    `sparkgpu.advise.scaling`. A row `is_disturbed` if other work took so much of the machine meanwhile that
    its figures are not to be believed.
    """

    name: str
    devices: int
    networks: int
    time_s: float
    rows_per_s: float
    speed_up: float
    device_hours: float
    price: float | None
    note: str = ""
    is_simulated: bool = False
    is_disturbed: bool = False

    @property
    def efficiency(self) -> float:
        return self.speed_up / self.devices


class BenchRecord(Record):
    """A bench, or what there is of one that was stopped: the first row is what the others are held against.

    `notes` must be said with the table.
    """

    schema_version: Literal[1] = 1
    title: str
    rows: tuple[BenchRow, ...]
    notes: tuple[str, ...]
