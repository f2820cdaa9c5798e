"""The rows of a trial: on the device, or training rows that do not fit there in the table's files.

G numeric inputs; F numeric and K categorical features, 4 bytes each on the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import psutil
import torch

from sparkgpu.core.config.model_keys import NeuralConfig
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.table.rows import RowGroups, read_rows
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.neural.nets.network import find_network, input_shape
from sparkgpu.neural.rows.resident import ResidentSource, mean_weight, raw_rows
from sparkgpu.neural.rows.stream import StreamedSource
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.joint import JointObjective
from sparkgpu.neural.training.objective import Objective
from sparkgpu.trials.engine import NeuralTrial

if TYPE_CHECKING:
    from sparkgpu.neural.gpu_share import Card

Residence = Literal["resident", "stream"]

_SHARE_OF_GPU = 0.6  # the rest is for weights and activations
_SHARE_OF_HOST = 0.25  # at the same time the trees hold the table twice
_ROW_OVERHEAD = 3.0  # raw and prepared numbers at the same time, and indicators of missing values
_POOL_BYTES = 256 * 2**20


class FittedRows:
    """The training rows, their source, and everything fitted on them."""

    def __init__(self, trial: NeuralTrial, strategy: Strategy, card: Card | None) -> None:
        spec, config, schema, paths = trial.spec, trial.parameters, trial.schema, trial.run
        device = strategy.device
        network = find_network(config)
        budget = card.budget_bytes if card is not None else None
        self.residence, reason = place_rows(
            config, schema, schema.splits["train"], device, budget, trial.lane.memory_bytes
        )
        self.notes: tuple[str, ...] = (reason,) if reason else ()
        sampled = torch.Generator().manual_seed(spec.seed)
        is_stream = self.residence == "stream"
        rows = read_rows(paths, schema, "train", fold=spec.fold, features=not is_stream)
        self.num_train_rows = len(rows.row_id_N)
        num_outputs = schema.num_outputs
        self.objective: Objective
        if schema.targets:
            each = [read_schema(paths.target(folder)) for folder in schema.targets]
            joint = JointObjective.fit_all(each, rows.label_N, rows.weight_N, config)
            self.objective, num_outputs = joint, joint.num_outputs
        else:
            fitted = Objective.fit(schema.task, rows.label_N, rows.weight_N, config.distribution)
            self.objective = network.recipe.objective(fitted, rows.label_N)
        self._pool_rows = pool_rows(config, schema)
        if is_stream:
            groups = RowGroups(paths, schema, "train", fold=spec.fold)
            blocks = (torch.from_numpy(block.numeric_NF) for block in groups.blocks())
            self.transform = network.transform.fit_blocks(blocks, self.num_train_rows, generator=sampled)
            self.source: ResidentSource | StreamedSource = StreamedSource(
                groups,
                self.num_train_rows,
                transform=self.transform.to(device),
                objective=self.objective,
                mean_weight=mean_weight(rows.weight_N),
                pool_rows=self._pool_rows,
                with_ids=network.looks_up,
                device=device,
            )
        else:
            raw = raw_rows(
                rows,
                self.objective,
                mean_weight=mean_weight(rows.weight_N),
                with_ids=network.looks_up,
            ).to(device)
            del rows
            self.transform = network.transform.fit(raw.numeric_NG, generator=sampled)
            raw = raw.prepared(self.transform)
            self.source = ResidentSource(rows=raw)
            del raw
        num_levels = tuple(len(feature.levels) for feature in schema.categorical)
        self.shape = input_shape(config, self.transform, num_levels, num_outputs)
        rows = read_rows(paths, schema, "valid", fold=spec.fold)
        raw = raw_rows(rows, self.objective, mean_weight=mean_weight(rows.weight_N)).to(device)
        self.valid = raw.prepared(self.transform)

    def bytes_on_device(self) -> int:
        """What the rows take on the device while the network trains, with the order of an epoch."""
        each = self.valid.num_bytes / max(len(self.valid), 1)
        if self.residence == "resident":
            return self.valid.num_bytes + int(self.num_train_rows * (each + 8))
        # A pool in use, the rest of the one before, both together, and the one that is on its way.
        return self.valid.num_bytes + int(min(4 * self._pool_rows, 2 * self.num_train_rows) * each)


def place_rows(
    config: NeuralConfig,
    schema: TableSchema,
    rows: int,
    device: torch.device,
    gpu_budget: int | None = None,
    lane_bytes: int = 0,
) -> tuple[Residence, str | None]:
    """Where to keep the training rows, and a note if it is neither the user's choice nor the usual place.

    `gpu_budget` is what the network's tensors may take of a GPU, `lane_bytes` the lane's share of the host's
    memory (0: not known).
    """
    if config.data != "auto":
        return config.data, None
    if gpu_budget is not None:
        budget = int(gpu_budget * _SHARE_OF_GPU)
    else:
        available = psutil.virtual_memory().available
        budget = int(min(available, lane_bytes or available) * _SHARE_OF_HOST)
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
