"""How the two branches of a lane share a GPU's memory: estimates and budgets in bytes, as pure arithmetic.

What XGBoost's gpu_hist takes follows from its sources (1.6, which H2O carries).
"""

from __future__ import annotations

import math

from sparkgpu.core.config.parameters import TreesParameters
from sparkgpu.core.table.schema import TableSchema

MIB = 2**20

PROCESS_BYTES = 600 * MIB
"""What a process takes on a GPU before its first tensor: the CUDA context, kernels, cuBLAS's workspace."""

_USABLE = 0.95  # the rest is for what the driver and the display take
_HISTOGRAM = 16  # of one bin: sums of gradients and hessians in float64
_MOST_HISTOGRAMS = 2**30  # XGBoost frees its histograms beyond that
_SLACK = 1.15


def tree_bytes(schema: TableSchema, parameters: TreesParameters) -> int:
    """What trees take on the GPU while they grow, their process included; 0 if they train on the CPU.

    While it makes the bins, XGBoost takes up to 0.8 of what is free for a moment, and less if less is free.
    """
    if not parameters.on_gpu:
        return 0
    train, valid = schema.splits["train"], schema.splits["valid"]
    columns = len(schema.numeric)
    one_hot = parameters.categorical_encoding == "one_hot_internal"
    columns += sum(len(feature.levels) + 1 if one_hot else 1 for feature in schema.categorical)
    bins = max(columns * parameters.max_bins, 1)
    quantised = train * columns * math.ceil(math.log2(bins + 1)) // 8
    outputs = len(schema.classes) if schema.task == "multiclass" else 1
    # A gradient pair and a prediction for each output; label, weight, and the row's position twice.
    rows = train * (8 * outputs + 4 * outputs + 8 + 16) + valid * (4 * outputs + 8 + 4 * columns)
    nodes = 2 ** min(parameters.max_depth or 8, 20)
    histograms = min(bins * _HISTOGRAM * nodes, _MOST_HISTOGRAMS)
    return PROCESS_BYTES + int(_SLACK * (quantised + rows + histograms))


def network_budget(card_bytes: int, beside_bytes: int, used_bytes: int = 0) -> int:
    """What tensors of the network may take on a card beside `beside_bytes` of the trees; at least 0.

    Others used `used_bytes` of it before the run began.
    """
    return max(card_bytes - taken_bytes(card_bytes, used_bytes) - beside_bytes - PROCESS_BYTES, 0)


def taken_bytes(card_bytes: int, used_bytes: int) -> int:
    """What a run leaves to others: what they used when it began, but at least the part of the driver."""
    return max(card_bytes - int(card_bytes * _USABLE), used_bytes)
