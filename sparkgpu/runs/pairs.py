"""The pairs of models that a reader asks for, each compared on the test rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from sparkgpu.plan.search_space import TUNED
from sparkgpu.rundir.results import PairResult
from sparkgpu.runs.pool import Pooled
from sparkgpu.score import compare
from sparkgpu.score.predictions import Labels
from sparkgpu.table.schema import TableSchema

BRANCHES = ("trees", "neural")  # of every run, trained or not


def compare_pairs(
    schema: TableSchema, test: Labels, pooled: Mapping[str, Pooled], first: str | None, seed: int
) -> tuple[PairResult, ...]:
    """Compare the averaged predictions of `pooled`; `first` is the best model on the validation rows."""
    pairs = []
    for a, b in _paired(tuple(pooled), first):
        found = compare.compare(
            schema.task, test.label_N, pooled[a].test, pooled[b].test, seed, weight_N=test.weight_N
        )
        pairs.append(
            PairResult(
                a=a,
                b=b,
                difference=found.difference,
                ci95=found.ci95,
                verdict=found.verdict,
                method=found.method,
                sentence=found.sentence(a, b),
            )
        )
    return tuple(pairs)


def _paired(models: Sequence[str], first: str | None) -> Iterator[tuple[str, str]]:
    """Trees with network, searched settings with defaults, the best with every other, the blend with each."""
    own = [name for name in models if name in BRANCHES]
    alone = [name for name in models if name != "blend"]
    against_first = ((first, name) for name in alone if first is not None and name != first)
    tuned = ((name, name.removesuffix(TUNED)) for name in alone if name.removesuffix(TUNED) != name)
    seen: set[frozenset[str]] = set()
    for a, b in (*combinations(own, 2), *tuned, *against_first, *(("blend", name) for name in alone)):
        if {a, b} <= set(models) and frozenset((a, b)) not in seen:
            seen.add(frozenset((a, b)))
            yield a, b
