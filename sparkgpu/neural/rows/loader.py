"""Training rows through torch's DataLoader, as most code does it: for comparison, not for speed.

The batches equal those of the resident table row for row, so only the time differs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sparkgpu.core.config.models import DataLoaderConfig
from sparkgpu.core.errors import TrialError
from sparkgpu.neural.rows.resident import ResidentRows, row_order

_SOCKET_BYTES = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")
"""The longest temporary folder: workers send batches through sockets in it, whose paths Linux limits."""


class LoadedSource:
    """Rows in the host's memory; the DataLoader's workers fetch them one by one and build the batches."""

    def __init__(self, rows: ResidentRows, config: DataLoaderConfig, device: torch.device) -> None:
        self._dataset = _RowDataset(rows)
        self._device = device
        on_gpu = device.type == "cuda"
        workers, folder = config.num_workers, tempfile.gettempdir()
        if (
            workers and len(folder.encode()) > _SOCKET_BYTES
        ):  # no batch would arrive, and nobody would say why
            raise TrialError(
                f"neural.dataloader.num_workers = {workers}: workers need a temporary folder of at most "
                f"{_SOCKET_BYTES} letters, and {folder} has {len(folder)}. Set TMPDIR to a shorter one."
            )
        self._order = _Order(len(rows))
        self._options: dict[str, Any] = {
            "num_workers": workers,
            "pin_memory": config.pin_memory and on_gpu,
            "persistent_workers": config.persistent_workers and workers > 0,
            "prefetch_factor": config.prefetch_factor if workers > 0 else None,
        }
        self._loader: DataLoader[Any] | None = None

    def __len__(self) -> int:
        return len(self._dataset)

    def batches(
        self, *, seed: int, epoch: int, batch_size: int, first: int, part: Callable[[int], slice]
    ) -> Iterator[tuple[ResidentRows, int]]:
        self._order.begin(seed, epoch)
        if self._loader is None or self._loader.batch_size != batch_size:
            self._loader = DataLoader(
                self._dataset, batch_size=batch_size, sampler=self._order, **self._options
            )
        for number, (numeric, codes, target, weight) in enumerate(self._loader):
            if number < first:
                continue
            batch = ResidentRows(
                numeric_NG=numeric,
                codes_NK=codes,
                target_N=target,
                weight_N=weight if self._dataset.weighted else None,
            )
            yield batch.part(part(len(batch))).to(self._device), len(batch)


class _RowDataset(Dataset[tuple[Tensor, Tensor, Tensor, Tensor]]):
    def __init__(self, rows: ResidentRows) -> None:
        self._rows = rows
        self.weighted = rows.weight_N is not None
        self._weight_N = torch.ones(len(rows)) if rows.weight_N is None else rows.weight_N

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows = self._rows
        return rows.numeric_NG[index], rows.codes_NK[index], rows.target_N[index], self._weight_N[index]


class _Order(torch.utils.data.Sampler[int]):
    """The order of an epoch, the same as for the resident table."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._place = (0, 1)

    def begin(self, seed: int, epoch: int) -> None:
        self._place = (seed, epoch)

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[int]:
        seed, epoch = self._place
        yield from row_order(self._rows, seed=seed, epoch=epoch, device=torch.device("cpu")).tolist()
