"""Training rows through torch's DataLoader, as most code does it: for comparison, not for speed.

The batches equal those of the resident table row for row, so only the time differs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from sparkgpu.core.config.models import DataLoaderConfig
from sparkgpu.core.errors import TrialError
from sparkgpu.neural.rows.resident import ResidentRows, row_order

_SOCKET_BYTES = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")
"""The longest temporary folder: workers send batches through sockets in it, whose paths Linux limits."""


class LoadedSource:
    """Rows in the host's memory; the DataLoader's workers fetch them one by one and build the batches."""

    def __init__(self, rows: ResidentRows, config: DataLoaderConfig, device: torch.device) -> None:
        workers, folder = config.num_workers, tempfile.gettempdir()
        # Otherwise no batch would arrive, and nobody would say why.
        if workers and len(folder.encode()) > _SOCKET_BYTES:
            raise TrialError(
                f"neural.dataloader.num_workers = {workers}: workers need a temporary folder of at most "
                f"{_SOCKET_BYTES} letters, and {folder} has {len(folder)}. Set TMPDIR to a shorter one."
            )
        self._dataset = TensorDataset(*rows.tensors())
        self._device = device
        self._order: list[int] = [0] * len(rows)
        self._options: dict[str, Any] = {
            "num_workers": workers,
            "pin_memory": config.pin_memory and device.type == "cuda",
            "persistent_workers": config.persistent_workers and workers > 0,
            "prefetch_factor": config.prefetch_factor if workers > 0 else None,
        }
        self._loader: DataLoader[Any] | None = None

    def __len__(self) -> int:
        return len(self._dataset)

    def batches(
        self, *, seed: int, epoch: int, batch_size: int, first: int, part: Callable[[int], slice]
    ) -> Iterator[tuple[ResidentRows, int]]:
        order_N = row_order(len(self), seed=seed, epoch=epoch, device=torch.device("cpu"))
        self._order[:] = order_N.tolist()  # the same list: workers that stay keep their loader
        if self._loader is None or self._loader.batch_size != batch_size:
            self._loader = DataLoader(
                self._dataset, batch_size=batch_size, sampler=self._order, **self._options
            )
        for number, tensors in enumerate(self._loader):
            if number >= first:
                batch = ResidentRows.of(tensors)
                yield batch.part(part(len(batch))).to(self._device), len(batch)
