"""Where training rows are kept: on the device if they fit, else in the table's files.

F numeric and K categorical features, 4 bytes each on the device.
"""

from __future__ import annotations

from typing import Literal

import psutil
import torch

from sparkgpu.core.config.models import NeuralConfig
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.table.schema import TableSchema

Residence = Literal["resident", "stream", "dataloader"]

_SHARE_OF_GPU = 0.6  # the rest is for weights and activations
_SHARE_OF_HOST = 0.25  # at the same time the trees hold the table twice
_ROW_OVERHEAD = 3.0  # raw and prepared numbers at the same time, and indicators of missing values
_POOL_BYTES = 256 * 2**20


def place_rows(
    config: NeuralConfig, schema: TableSchema, rows: int, device: torch.device, gpu_budget: int | None = None
) -> tuple[Residence, str | None]:
    """Where to keep the training rows, and a note if it is neither the user's choice nor the usual place.

    `gpu_budget` is what the network's tensors may take of a GPU.
    """
    if config.data != "auto":
        return config.data, None
    if gpu_budget is not None:
        budget = int(gpu_budget * _SHARE_OF_GPU)
    else:
        budget = int(psutil.virtual_memory().available * _SHARE_OF_HOST)
    needed = int(rows * _row_bytes(schema) * _ROW_OVERHEAD)
    if needed <= budget:
        return "resident", None
    return "stream", (
        f"the training rows need {needed / 2**30:.1f} GiB and {device} can spare {budget / 2**30:.1f}, so "
        "they are streamed from the table's files"
    )


def pool_rows(config: NeuralParameters, schema: TableSchema) -> int:
    """The rows of one pool of the stream: a few hundred MiB, but at least several batches."""
    return max(16 * config.batch_size, int(_POOL_BYTES / (_row_bytes(schema) * _ROW_OVERHEAD)))


def _row_bytes(schema: TableSchema) -> int:
    return 4 * (len(schema.numeric) + len(schema.categorical)) + 12
