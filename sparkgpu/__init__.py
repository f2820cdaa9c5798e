"""Trees or neural nets on your table, and how many GPUs are worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "FittedModel",
    "RunResult",
    "TargetsResult",
    "__version__",
    "compare",
    "load",
    "read_run",
    "refit",
    "run",
]

if TYPE_CHECKING:
    from sparkgpu.api import refit, run
    from sparkgpu.predict.fitted import FittedModel, load
    from sparkgpu.present.frames import compare
    from sparkgpu.present.run_result import RunResult, TargetsResult, read_run


def __getattr__(name: str) -> Any:
    """Load these names at first use, so that ``import sparkgpu`` needs no other package."""
    if name in ("run", "refit"):
        from sparkgpu import api

        return getattr(api, name)
    if name == "compare":
        from sparkgpu.present import frames

        return frames.compare
    if name in ("read_run", "RunResult", "TargetsResult"):
        from sparkgpu.present import run_result

        return getattr(run_result, name)
    if name in ("load", "FittedModel"):
        from sparkgpu.predict import fitted

        return getattr(fitted, name)
    raise AttributeError(f"module 'sparkgpu' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Also the names that are loaded at first use."""
    return sorted({*globals(), *__all__})
