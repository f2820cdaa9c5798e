"""Rates per second from counters that only grow, and the machine's own: processor, memory, network."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psutil


class Rate:
    """The growth per second of one counter between two looks."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def of(self, value: float | None, at_s: float) -> float | None:
        """None at the first look, without a value, and where the counter began again."""
        before, self._last = self._last, None if value is None else (value, at_s)
        if value is None or before is None or value < before[0] or at_s <= before[1]:
            return None
        return (value - before[0]) / (at_s - before[1])


@dataclass(frozen=True, kw_only=True)
class MachineLoad:
    """What the whole machine does; None where the system does not tell. The network is without loopback."""

    cpu_percent: float | None
    mem_used_bytes: int | None
    mem_available_bytes: int | None
    net_rx_bytes_per_s: float | None
    net_tx_bytes_per_s: float | None


class MachineMeter:
    """Measures between two looks of one thread: the first has no rates."""

    def __init__(self) -> None:
        self._received, self._sent = Rate(), Rate()
        self._is_first = True

    def measure(self, at_s: float) -> MachineLoad:
        cpu = used = available = received = sent = None
        with suppress(OSError, RuntimeError, psutil.Error):
            busy = psutil.cpu_percent(interval=None)
            cpu, self._is_first = None if self._is_first else busy, False
        with suppress(OSError, RuntimeError, psutil.Error):
            memory = psutil.virtual_memory()
            used, available = memory.total - memory.available, memory.available
        with suppress(OSError, RuntimeError, psutil.Error):
            links = [found for name, found in psutil.net_io_counters(pernic=True).items() if name != "lo"]
            received, sent = sum(one.bytes_recv for one in links), sum(one.bytes_sent for one in links)
        return MachineLoad(
            cpu_percent=cpu,
            mem_used_bytes=used,
            mem_available_bytes=available,
            net_rx_bytes_per_s=self._received.of(received, at_s),
            net_tx_bytes_per_s=self._sent.of(sent, at_s),
        )
