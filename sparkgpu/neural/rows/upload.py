"""Pools of rows on their way to a GPU, each copied while the one before it is used.

The copy runs on a stream of its own, from pinned memory, so neither the host nor the steps wait for it.
Limit: one pool at a time is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from sparkgpu.neural.rows.resident import ResidentRows


@dataclass(frozen=True, kw_only=True)
class Coming:
    """Rows whose copy has begun; `done` is what tells the device when they are there."""

    rows: ResidentRows
    done: object = None


class Upload(Protocol):
    """How rows get to a device, in two parts."""

    def begin(self, rows: ResidentRows) -> Coming:
        """Start the copy of rows in pinned memory."""
        ...

    def finish(self, coming: Coming) -> ResidentRows:
        """The rows for the steps that follow, which wait on the device until they are there."""
        ...


class CudaUpload:
    """To a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def begin(self, rows: ResidentRows) -> Coming:
        with torch.cuda.stream(self._stream):
            there = rows.to(self._device)
        return Coming(rows=there, done=self._stream.record_event())

    def finish(self, coming: Coming) -> ResidentRows:
        now = torch.cuda.current_stream(self._device)
        assert isinstance(coming.done, torch.cuda.Event)
        now.wait_event(coming.done)
        coming.rows.used_on(now)  # so that their memory is not given away before the steps have read it
        return coming.rows
