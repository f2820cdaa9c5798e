"""The configuration of in-context models: ``[tabicl]``, and tables of ``[[models]]`` with such an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.config.values import Count, Section


class ContextKeys(Section):
    """``[tabicl]``: a model trained on other tables, which reads training rows of this one as it predicts.

    `checkpoint` is a file with its weights (None: the published ones, from its package's cache or download).
    It reads at most `rows` training rows and `columns` columns, and a prediction is the mean of `estimators`
    views of them. None means the engine's own number.
    """

    checkpoint: (
        Annotated[str, AfterValidator(lambda file: str(Path(file).expanduser().absolute()))] | None
    ) = None
    rows: Count | None = None
    columns: Count | None = None
    estimators: Count | None = None


class ContextConfig(ContextKeys):
    """The same, for the model of one `engine`."""

    engine: Annotated[
        str, AfterValidator(lambda name: ENGINES.find(name, lambda entry: entry.in_context).name)
    ]

    @property
    def engine_name(self) -> str:
        return self.engine


class ContextParameters(ContextConfig):
    """The same, resolved."""

    rows: int
    columns: int
    estimators: int
