"""Puts the rows of a trial on its device, with everything that is fitted on the training rows.

G numeric features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sparkgpu.core.table.row_groups import RowGroups
from sparkgpu.core.table.rows import read_rows
from sparkgpu.neural.nets.network import find_network, input_shape
from sparkgpu.neural.rows.loader import LoadedSource
from sparkgpu.neural.rows.placement import place_rows, pool_rows
from sparkgpu.neural.rows.resident import BatchSource, ResidentSource, mean_weight, raw_rows
from sparkgpu.neural.rows.stream import StreamedSource, fit_transform
from sparkgpu.neural.rows.upload import CudaUpload
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.objective import Objective
from sparkgpu.trials.engine import NeuralTrial

if TYPE_CHECKING:
    from sparkgpu.neural.card import Card


class FittedRows:
    """The training rows, their source, and everything fitted on them."""

    def __init__(self, trial: NeuralTrial, strategy: Strategy, card: Card | None) -> None:
        spec, config, schema, paths = trial.spec, trial.parameters, trial.schema, trial.run
        device = strategy.device
        network = find_network(config)
        kind, recipe = network.transform, network.recipe
        budget = card.budget_bytes if card is not None else None
        self.residence, reason = place_rows(config, schema, schema.splits["train"], device, budget)
        self.notes = (reason,) if reason else ()
        sampled = torch.Generator().manual_seed(spec.seed)
        if self.residence == "stream":
            own = read_rows(paths, schema, "train", fold=spec.fold, features=False)
            self.num_train_rows = len(own.row_id_N)
            groups = RowGroups(paths, schema, "train", fold=spec.fold)
            self.objective = recipe.objective(
                Objective.fit(schema.task, own.label_N, own.weight_N), own.label_N
            )
            self.transform = fit_transform(kind, groups, self.num_train_rows, generator=sampled).to(device)
            self.source: BatchSource = StreamedSource(
                groups,
                self.num_train_rows,
                transform=self.transform,
                objective=self.objective,
                mean_weight=mean_weight(own.weight_N),
                pool_rows=pool_rows(config, schema),
                device=device,
                upload=CudaUpload(device) if device.type == "cuda" else None,
            )
        else:
            rows = read_rows(paths, schema, "train", fold=spec.fold)
            self.num_train_rows = len(rows.row_id_N)
            self.objective = recipe.objective(
                Objective.fit(schema.task, rows.label_N, rows.weight_N), rows.label_N
            )
            raw = raw_rows(rows, self.objective, mean_weight=mean_weight(rows.weight_N))
            kept = torch.device("cpu") if self.residence == "dataloader" else device
            raw = raw.to(kept)
            del rows
            self.transform = kind.fit(raw.numeric_NG, generator=sampled)
            if self.residence == "dataloader":
                self.source = LoadedSource(raw.prepared(self.transform), config.dataloader, device)
                self.transform.to(device)
            else:
                self.source = ResidentSource(rows=raw.prepared(self.transform))
            del raw
        num_levels = tuple(len(feature.levels) for feature in schema.categorical)
        self.shape = input_shape(config, self.transform, num_levels, schema.num_outputs)
        rows = read_rows(paths, schema, "valid", fold=spec.fold)
        raw = raw_rows(rows, self.objective, mean_weight=mean_weight(rows.weight_N)).to(device)
        self.valid = raw.prepared(self.transform)
        self._pool_rows = pool_rows(config, schema)

    def bytes_on_device(self) -> int:
        """What the rows take on the device while the network trains, with the order of an epoch."""
        each = self.valid.num_bytes / max(len(self.valid), 1)
        if self.residence == "resident":
            return self.valid.num_bytes + int(self.num_train_rows * (each + 8))
        # A pool in use, the rest of the one before, both together, and the one that is on its way.
        if self.residence == "stream":
            return self.valid.num_bytes + int(min(4 * self._pool_rows, 2 * self.num_train_rows) * each)
        return self.valid.num_bytes
