"""The tables of a contest: how honest probabilities are, what the blend is made of, what searches found."""

from __future__ import annotations

from sparkgpu.report.cells import Cell, Table, number_cell, seconds_cell
from sparkgpu.report.tables import signed
from sparkgpu.rundir.results import ModelResult, Results
from sparkgpu.score.metrics import score
from sparkgpu.words import blend_of_one as alone
from sparkgpu.words import metric_title, number_text


def calibration(found: Results) -> Table:
    """How honest each model's probabilities are, before and after temperature scaling."""
    rows = tuple(
        (
            Cell(text=model.name),
            number_cell(one.error_before),
            number_cell(one.error_after),
            number_cell(one.brier_before),
            number_cell(one.brier_after),
            Cell(text=number_text(one.temperature, 3), number=True),
            Cell(text=_scaled_here(found, model)),
        )
        for model in found.models
        if (one := model.calibration) is not None
    )
    columns = (
        "test split", "calibration error", "after scaling", "Brier score", "after scaling", "temperature",
        "scaled here",
    )  # fmt: skip
    return Table(columns=columns, rows=rows)


def _scaled_here(found: Results, model: ModelResult) -> str:
    if model.weights is None:
        return "yes" if model.calibration and model.calibration.applied else "no"
    members = (one.calibration for one in found.models if model.weights.get(one.name))
    return "its members" if any(one and one.applied for one in members) else "no"


def blend_parts(found: Results) -> Table:
    """The members of the blend: their shares, and what each adds on the validation rows."""
    blend = next((model for model in found.models if model.weights), None)
    if blend is None or blend.only or not blend.gains:
        return Table(columns=(), rows=())
    title = metric_title(found.comparison.metric)
    rows = tuple(
        (
            Cell(text=name),
            Cell(text=number_text(share, 3), number=True),
            Cell(text=signed((blend.gains or {}).get(name), None), number=True),
        )
        for name, share in (blend.weights or {}).items()
        if share
    )
    return Table(columns=("member of the blend", "weight", f"gain in {title}, valid"), rows=rows)


def blend_of_one(found: Results) -> str:
    """What to say of a blend that is one model again, instead of showing it; else empty."""
    only = next((model.only for model in found.models if model.only), None)
    return alone(only) if only else ""


def searches(found: Results) -> Table:
    """What each search tried and chose."""
    rows = []
    for trial in found.done():
        one = trial.search
        if one is None:
            continue
        of = f" of {one.asked}, then the time was over" if one.tried < one.asked else ""
        counts = f"{one.tried}{of} ({one.pruned} given up, {one.failed} failed)"
        chosen = ", ".join(f"{key} {_setting(value)}" for key, value in one.setting.items())
        before, after = (
            None if found_score is None else score(one.metric, found_score)
            for found_score in (one.default_score, one.best_score)
        )
        rows.append(
            (
                Cell(text=trial.name),
                Cell(text=counts),
                seconds_cell(one.search_s),
                number_cell(before),
                number_cell(after),
                Cell(text="the defaults" if one.best == 0 else chosen),
            )
        )
    title = metric_title(found.comparison.metric)
    columns = ("search", "settings", "time", f"defaults, {title}, valid", "chosen", "chosen settings")
    return Table(columns=columns, rows=tuple(rows))


def _setting(value: object) -> str:
    return " × ".join(map(str, value)) if isinstance(value, list) else str(value)
