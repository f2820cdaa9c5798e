"""The records of ``advice.json`` and ``bench.json``.

They hold what `sparkgpu advise` predicted of a run, and what `sparkgpu bench` measured.
"""

from __future__ import annotations

from typing import Literal

from sparkgpu.core.rundir.files import Part

Standing = Literal["chosen", "possible", "not here"]


class OptionRecord(Part):
    """One way to carry out the run: whether it suits, and why.

    `wall_s`, `efficiency` (of one network over `devices`, or of networks side by side) and `price` are None
    where nothing was predicted.
    """

    name: str
    standing: Standing
    why: str
    devices: int | None = None
    wall_s: float | None = None
    efficiency: float | None = None
    price: float | None = None


class AdviceRecord(Part):
    """What is predicted of one run, before it begins; times in seconds, memory in bytes.

    The table is ready after `ready_s`, the trees after `trees_s` and the networks after `neural_s` (None: the
    run has none), counted from the start. `peak_rss_bytes` is the memory of all processes together,
    `peak_device_bytes` that of the network on each GPU.
    """

    schema_version: Literal[1] = 1
    source: str
    rows: int
    num_features: int
    task: str
    device: str
    lanes: int
    strategy: str
    wall_s: float
    ready_s: float
    trees_s: float | None
    neural_s: float | None
    peak_rss_bytes: int
    peak_device_bytes: int | None
    device_hours: float
    price: float | None
    assumptions: tuple[str, ...]
    options: tuple[OptionRecord, ...]


class BenchRow(Part):
    """One configuration.

    `time_s` is that of one pass over the training rows, for each network. `speed_up` compares rows per
    second with the first row of the table, and `efficiency` divides it by the devices. `device_hours` and
    `price` are for one pass and one network. `is_simulated` rows come from the model of
    `sparkgpu.ops.advise.scaling`.
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

    @property
    def efficiency(self) -> float:
        return self.speed_up / self.devices


class BenchRecord(Part):
    """A bench, or what there is of one that was stopped: the others are compared with the first row.

    `notes` must be said with the table.
    """

    schema_version: Literal[1] = 1
    title: str
    rows: tuple[BenchRow, ...]
    notes: tuple[str, ...]
