"""Trees or neural nets on your table, and how many GPUs are worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["FittedModel", "RunResult", "__version__", "load", "run"]

if TYPE_CHECKING:
    from sparkgpu.api import RunResult, run
    from sparkgpu.predict.fitted import FittedModel, load


def __getattr__(name: str) -> Any:
    """Load these names at first use, so that ``import sparkgpu`` needs no other package."""
    if name in ("run", "RunResult"):
        from sparkgpu import api

        return getattr(api, name)
    if name in ("load", "FittedModel"):
        from sparkgpu.predict import fitted

        return getattr(fitted, name)
    raise AttributeError(f"module 'sparkgpu' has no attribute {name!r}")
