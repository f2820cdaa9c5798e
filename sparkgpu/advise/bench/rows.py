"""The rows of a bench's table: what each configuration took, and what it is worth. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkgpu.advise.bench.train import Measured
from sparkgpu.advise.scaling import MODELLED, Link, Modelled, StepCost, speed_up, step_s


@dataclass(frozen=True, kw_only=True)
class Row:
    """One configuration.

    `time_s` is that of one pass over the training rows, for each network. `speed_up` compares rows per
    second with the first row of the table, and `efficiency` divides it by the devices. `device_hours` and
    `price` are for one pass and one network. `is_simulated` rows come from the model of
    `sparkgpu.advise.scaling`.
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


def measured_rows(found: Sequence[Measured], *, cores: int | None, price: float | None) -> list[Row]:
    """A row for each measurement; the first one is what the others are compared with.

    `cores` are those that CPU lanes share, None for GPUs. `price` is that of a device for an hour.
    """
    first = found[0]
    rows = []
    for one in found:
        hours = one.case.devices * one.epoch_s / one.networks / 3600
        rows.append(
            Row(
                name=one.case.name,
                devices=one.case.devices,
                networks=one.networks,
                time_s=one.epoch_s,
                rows_per_s=one.rows_per_s,
                speed_up=one.rows_per_s / first.rows_per_s,
                device_hours=hours,
                price=None if price is None else price * hours,
                note=_cores_note(one, cores),
            )
        )
    return rows


def _cores_note(one: Measured, cores: int | None) -> str:
    if cores is None:
        return ""
    threads = one.case.devices * one.threads
    if threads > cores:
        return f"oversubscribed: {threads} threads on {cores} cores"
    if one.case.devices > 1:
        each = "1 core" if one.threads == 1 else f"{one.threads} cores"
        return f"the same {cores} cores, {each} for each lane"
    return f"{one.threads} of {cores} cores" if one.threads < cores else f"all {cores} cores"


def simulated_rows(
    found: Sequence[Measured],
    counts: Sequence[int],
    strategies: Sequence[str],
    *,
    cost: StepCost,
    link: Link,
    price: float | None,
) -> list[Row]:
    """Rows past the machine: as many devices like the one that was measured, each with cores of its own."""
    first = found[0]
    steps = -(-first.train_rows // first.batch)
    rows = []
    for devices in counts:
        for strategy in _modelled(strategies):
            each_s = step_s(
                strategy,
                cost,
                batch=first.batch,
                weight_bytes=4 * first.parameters,
                devices=devices,
                link=link,
            )
            times = speed_up(
                strategy,
                cost,
                batch=first.batch,
                weight_bytes=4 * first.parameters,
                devices=devices,
                link=link,
            )
            networks = devices if strategy == "lanes" else 1
            hours = devices * each_s * steps / networks / 3600
            rows.append(
                Row(
                    name=strategy,
                    devices=devices,
                    networks=networks,
                    time_s=each_s * steps,
                    rows_per_s=times * first.train_rows / (cost.step_s(first.batch) * steps),
                    speed_up=times,
                    device_hours=hours,
                    price=None if price is None else price * hours,
                    note="simulated",
                    is_simulated=True,
                )
            )
    return rows


def _modelled(strategies: Sequence[str]) -> list[Modelled]:
    return [name for name in MODELLED if name != "single" and (name == "lanes" or name in strategies)]


def assumptions(cost: StepCost, link: Link, first: Measured) -> list[str]:
    """What the simulated rows assume, one sentence each."""
    return [
        f"a step on one device takes {1e3 * cost.fixed_s:.2f} ms, and {1e6 * cost.row_s:.2f} µs for each row "
        f"of its part of a batch of {first.batch:,}, as measured here on one device at two batch sizes",
        f"the batch of {first.batch:,} rows is cut over the devices, so the network learns the same; lanes "
        "train a network each",
        f"{first.parameters:,} weights in float32, {4 * first.parameters / 1e6:.1f} MB, are summed "
        "once a step",
        f"two devices exchange {link.bytes_per_s / 1e9:.2f} GB/s with {1e6 * link.latency_s:.0f} µs of "
        f"latency, {link.origin}",
        "a ring all-reduce; nothing of the communication is hidden behind the computation; no device waits "
        "for another, and rows are at hand",
    ]
