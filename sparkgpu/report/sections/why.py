"""Why the models answer as they do: what the columns are worth to each, and what the leading ones do.

All of it comes from ``explanations.json``, which `sparkgpu.explain` makes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparkgpu.errors import ConfigError
from sparkgpu.report.cells import DASH, Cell, Table
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.pictures.dependence import dependence
from sparkgpu.report.pictures.importance import importance_map
from sparkgpu.rundir.explanations import ColumnImportance, Explanations, Importance, read_explanations
from sparkgpu.words import counted, listed, metric_title, number_text, seconds_text

_LEADING = 10
_MOST_SENTENCES = 8


def content(run: Inputs) -> dict[str, object] | None:
    """The values of the templates; without explanations only the sentence how to make them."""
    if not run.results.done():
        return None
    try:
        found = read_explanations(run.paths)
    except ConfigError as error:
        return {"absent": str(error)}
    if found is None:
        return {"absent": f"The models are not explained. `sparkgpu report {run.paths.root.name}` does it."}
    names = [model.name for model in run.results.models]
    models = [model.name for model in found.models]
    decimals = decimals_of(found)
    sentences = [one.differs for one in found.importances if one.differs]
    return {
        "absent": "",
        "map": importance_map(found, names, decimals),
        "dependence": dependence(found, names, run.schema.target),
        "pair": found.pair,
        "sentences": sentences[:_MOST_SENTENCES],
        "no_difference": _no_difference(found, sentences),
        "table": _table(found.importances, models, decimals),
        "leading": _table(found.importances[:_LEADING], models, decimals),
        "how": _how(found),
        "notes": found.notes,
    }


def decimals_of(found: Explanations) -> int:
    """Three digits of the largest importance, the same for all, so that they compare at a glance."""
    values = [abs(one.mean) for row in found.importances for one in row.models.values()]
    largest = max(values, default=0.0)
    return min(max(2 - math.floor(math.log10(largest)), 0), 8) if largest > 0 else 2


def _no_difference(found: Explanations, sentences: Sequence[str]) -> str:
    if found.pair is None or sentences or not found.importances:
        return ""
    return f"No column matters clearly more to {found.pair[0]} than to {found.pair[1]}, or less."


def _table(rows: Sequence[ColumnImportance], models: Sequence[str], decimals: int) -> Table:
    return Table(
        columns=("column", *models),
        rows=tuple(
            (
                Cell(text=f"{row.column}{' ≠' if row.differs else ''}", hint=row.differs or ""),
                *(_cell(row.models.get(model), decimals) for model in models),
            )
            for row in rows
        ),
        sortable=True,
    )


def _cell(one: Importance | None, decimals: int) -> Cell:
    if one is None:
        return Cell(text=DASH, number=True)
    spread = f" ± {one.std:z,.{decimals}f}" if one.std is not None else ""
    return Cell(text=f"{one.mean:z,.{decimals}f}{spread}", number=True, value=one.mean)


def _how(found: Explanations) -> str:
    """How it was computed, in sentences."""
    if not found.models:
        return ""
    title = metric_title(found.metric)
    shuffles = [one.shuffles for row in found.importances for one in row.models.values()]
    times = sorted({min(shuffles), max(shuffles)}) if shuffles else []
    values = listed(f"{model.name} {number_text(model.value)}" for model in found.models)
    sampled = "all" if found.rows == found.test_rows else f"{found.rows:,} of"
    return (
        f"An importance is how much worse {title} gets when one column is shuffled: its mean ± standard "
        f"deviation over {' to '.join(map(str, times))} shuffles, the same for all models, on "
        f"{sampled} {counted(found.test_rows, 'test row')}. A column whose content others repeat matters "
        f"more than this shows. A curve is the mean prediction for {counted(found.dependence_rows, 'row')} "
        f"that all get the same value. {title} of the models on the sample: {values}. Seed {found.seed}; "
        f"{seconds_text(found.seconds)} in all."
    )
