"""The report of a run: a page that opens offline, the same in Markdown, a CSV of all metrics, pictures.

`build` is the one door. Importing this package loads matplotlib, so callers import it when they need it.
"""

from __future__ import annotations

from sparkgpu.report.render import build

__all__ = ["build"]
