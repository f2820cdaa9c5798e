"""The first screen: the verdict, the leaderboard, and whether the differences are real."""

from __future__ import annotations

from sparkgpu.report import contest_tables, tables
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.verdict import verdict
from sparkgpu.words import metric_title


def content(run: Inputs) -> dict[str, object]:
    """The values of the templates."""
    found = run.results
    weight = run.schema.weight
    return {
        "verdict": verdict(found),
        "caveats": [f"{text[0].upper()}{text[1:]}." for text in found.comparison.caveats],
        "failures": tables.failures(found),
        "results": tables.results(found),
        "weight_note": "" if weight is None else _weights(weight),
        "comparison": tables.comparison(found),
        "comparison_metric": metric_title(found.comparison.metric),
        "blend_parts": contest_tables.blend_parts(found),
    }


def _weights(column: str) -> str:
    return (
        f"Column {column} weights the rows in every metric, in the intervals and in the weights of the blend."
    )
