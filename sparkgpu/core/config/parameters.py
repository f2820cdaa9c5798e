"""The parameters of an engine: a section of the configuration in which every key has a value."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sparkgpu.core.config.models import NeuralConfig, TreesConfig
from sparkgpu.core.config.values import (
    CategoricalEncoding,
    Count,
    Fraction,
    GrowPolicy,
    NotNegative,
    NumberEmbedding,
    Positive,
    Schedule,
)


class TreesParameters(TreesConfig):
    """``[trees]``, resolved. `tree_method` is never auto."""

    ntrees: Count
    grow_policy: GrowPolicy
    max_depth: Annotated[int, Field(ge=0)]
    max_leaves: Annotated[int, Field(ge=0)]
    categorical_encoding: CategoricalEncoding
    learn_rate: Positive
    early_stopping_rounds: Annotated[int, Field(ge=0)]
    min_rows: NotNegative
    sample_rate: Fraction
    col_sample_rate: Fraction
    col_sample_rate_per_tree: Fraction
    reg_lambda: NotNegative
    reg_alpha: NotNegative
    max_bins: Annotated[int, Field(ge=2)]
    try_smaller: bool = False

    @property
    def on_gpu(self) -> bool:
        return self.tree_method == "gpu_hist"


class NeuralParameters(NeuralConfig):
    """``[neural]``, resolved. For a network without members, bins or embeddings of numbers these are 1."""

    hidden: tuple[Count, ...]
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)]
    members: Count = 1
    num_bins: Count = 1
    number_embedding: NumberEmbedding = "piecewise"
    embedding_dim: Count = 1
    epochs: Count
    batch_size: Count
    micro_batch_size: Count
    learning_rate: Positive
    muon_learning_rate: NotNegative = 0.0
    schedule: Schedule
    weight_decay: NotNegative
    patience: Annotated[int, Field(ge=0)]
