"""The parameters of an engine: a section of the configuration in which every key has a value."""

from __future__ import annotations

from sparkgpu.core.config.context_keys import ContextParameters
from sparkgpu.core.config.model_keys import NeuralConfig, TreesConfig
from sparkgpu.core.config.values import CategoricalEncoding, GrowPolicy, NumberEmbedding, Schedule


class TreesParameters(TreesConfig):
    """``[trees]``, resolved. `tree_method` is never auto."""

    ntrees: int
    grow_policy: GrowPolicy
    max_depth: int
    max_leaves: int
    categorical_encoding: CategoricalEncoding
    learn_rate: float
    early_stopping_rounds: int
    min_rows: float
    sample_rate: float
    col_sample_rate: float
    col_sample_rate_per_tree: float
    reg_lambda: float
    reg_alpha: float
    max_bins: int
    try_smaller: bool = False

    @property
    def on_gpu(self) -> bool:
        return self.tree_method == "gpu_hist"


class NeuralParameters(NeuralConfig):
    """``[neural]``, resolved. For a network without members, bins or embeddings of numbers these are 1."""

    hidden: tuple[int, ...]
    dropout: float
    members: int = 1
    num_bins: int = 1
    number_embedding: NumberEmbedding = "piecewise"
    embedding_dim: int = 1
    epochs: int
    batch_size: int
    micro_batch_size: int
    learning_rate: float
    muon_learning_rate: float = 0.0
    schedule: Schedule
    weight_decay: float
    patience: int


Parameters = TreesParameters | NeuralParameters | ContextParameters
