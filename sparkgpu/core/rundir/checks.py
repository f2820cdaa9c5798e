"""The named checks of a run: a part of ``metrics.json``."""

from __future__ import annotations

from typing import Literal

from sparkgpu.core.config.values import CheckName
from sparkgpu.core.rundir.files import Part

HOW_TO = "docs/checks.md"
"""The page that says how to reduce the risk that a check names."""


class Check(Part):
    """A named check: its number, and the `bound` beyond which it fails if that is not by chance.

    `sparkgpu.runs.checks` and docs/checks.md say what the numbers are; `page` is the section there.
    """

    name: CheckName
    status: Literal["passed", "failed", "not judged"]
    value: float | None = None
    bound: float | None = None
    evidence: str

    @property
    def page(self) -> str:
        return self.name.replace("_", "-")
