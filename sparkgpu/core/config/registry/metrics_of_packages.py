"""Metrics of other packages, by which models can be compared (``metric`` in the configuration).

`load` of an entry names a function ``f(label_N, prediction, weight_N) -> float``: of class codes and
probabilities (N, C), or of values (N,) both; `weight_N` is (N,) or None. Limits: it runs in the parent
process and in workers, so its package must be installed where they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkgpu.core.config.registry.entries import Entry, Registry


@dataclass(frozen=True, kw_only=True)
class MetricEntry(Entry):
    """`greater_is_better` is False for losses and errors."""

    greater_is_better: bool = True


METRICS: Registry[MetricEntry] = Registry("sparkgpu.metrics", MetricEntry, ())
