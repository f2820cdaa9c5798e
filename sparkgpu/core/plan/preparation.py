"""What makes the features of each row: Spark's pipeline, or Arrow where a run needs no JVM."""

from __future__ import annotations

from typing import Literal

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.table.demo import DEMO
from sparkgpu.core.table.source import Source

PreparedBy = Literal["spark", "arrow"]
Context = Literal["none", "spark", "spark + h2o"]
"""What is in the JVM of a lane."""


def choose_preparation(
    config: RunConfig, source: Source | None, *, has_session: bool, reasons: dict[str, str]
) -> PreparedBy:
    """``spark`` or ``arrow``; adds the reason if it was left open. Raises `ConfigError`.

    `source` None stands for a table on this machine. `has_session` tells whether the run has a Spark session
    for its trees.
    """
    by_spark = source is not None and source.location != DEMO and source.is_opened_by_spark
    if config.prepare.by == "arrow" and source is not None and by_spark:
        raise ConfigError(
            f'prepare.by = "arrow": {source.name} does not lie in plain files of this machine, so only Spark '
            'can read it. Set prepare.by = "spark", or leave it out.'
        )
    if config.prepare.by != "auto":
        return config.prepare.by
    if has_session:
        reasons["prepare"] = "by Spark's pipeline, in the session in which H2O grows the trees"
        return "spark"
    if by_spark:
        reasons["prepare"] = "by Spark's pipeline: the table does not lie in plain files of this machine"
        return "spark"
    reasons["prepare"] = "by Arrow: no model of this run needs a JVM"
    return "arrow"
