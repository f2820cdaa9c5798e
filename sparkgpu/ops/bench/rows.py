"""The rows of a bench's table: what each configuration took, and what it is worth. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from sparkgpu.core.rundir.advice import BenchRow
from sparkgpu.ops.advise.scaling import MODELLED, Step
from sparkgpu.ops.bench.train import Measured


def measured_rows(
    found: Sequence[Measured], *, cores: int, on_cpu: bool, price: float | None
) -> list[BenchRow]:
    """A row for each measurement; the first one is what the others are compared with.

    `cores` are the machine's, which lanes share `on_cpu`. `price` is that of a device for an hour.
    """
    rows = []
    for one in found:
        hours = one.case.devices * one.epoch_s / one.case.networks / 3600
        rows.append(
            BenchRow(
                name=one.case.name,
                devices=one.case.devices,
                networks=one.case.networks,
                time_s=one.epoch_s,
                rows_per_s=one.rows_per_s,
                speed_up=one.rows_per_s / found[0].rows_per_s,
                device_hours=hours,
                price=None if price is None else price * hours,
                note=_cores_note(one, cores) if on_cpu else "",
            )
        )
    return rows


def _cores_note(one: Measured, cores: int) -> str:
    threads = one.case.devices * one.threads
    if threads > cores:
        return f"oversubscribed: {threads} threads on {cores} cores"
    if one.case.devices > 1:
        each = "1 core" if one.threads == 1 else f"{one.threads} cores"
        return f"the same {cores} cores, {each} for each lane"
    return f"{one.threads} of {cores} cores" if one.threads < cores else f"all {cores} cores"


def simulated_rows(
    first: Measured, counts: Sequence[int], strategies: Sequence[str], *, step: Step, price: float | None
) -> list[BenchRow]:
    """Rows past the machine: as many devices like the one that was measured, each with cores of its own."""
    steps = -(-first.train_rows // first.batch)
    rows = []
    for devices in counts:
        for strategy in (name for name in MODELLED if name == "lanes" or name in strategies):
            time_s, times = steps * step.seconds(strategy, devices), step.speed_up(strategy, devices)
            networks = devices if strategy == "lanes" else 1
            hours = devices * time_s / networks / 3600
            rows.append(
                BenchRow(
                    name=strategy,
                    devices=devices,
                    networks=networks,
                    time_s=time_s,
                    rows_per_s=times * first.train_rows / (steps * step.seconds()),
                    speed_up=times,
                    device_hours=hours,
                    price=None if price is None else price * hours,
                    note="simulated",
                    is_simulated=True,
                )
            )
    return rows


def assumptions(step: Step) -> list[str]:
    """What the simulated rows assume, one sentence each."""
    return [
        f"a step on one device takes {1e3 * step.fixed_s:.2f} ms, and {1e6 * step.row_s:.2f} µs for each row "
        f"of its part of a batch of {step.batch:,}, as measured here on one device at two batch sizes",
        f"the batch of {step.batch:,} rows is cut over the devices, so the network learns the same; lanes "
        "train a network each",
        f"{step.weight_bytes // 4:,} weights in float32, {step.weight_bytes / 1e6:.1f} MB, are summed "
        "once a step",
        f"two devices exchange {step.link.bytes_per_s / 1e9:.2f} GB/s with "
        f"{1e6 * step.link.latency_s:.0f} µs of latency, {step.link.origin}",
        "a ring all-reduce; nothing of the communication is hidden behind the computation; no device waits "
        "for another, and rows are at hand",
    ]
