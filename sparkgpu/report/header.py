"""The head of the page: what was predicted from what, how large the table is, on which machine, how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from sparkgpu.report.inputs import Inputs
from sparkgpu.words import clean, counted, gibibytes, number_text, seconds_text


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A name and a short text; `hint` is the whole of what the text shortens."""

    name: str
    text: str
    hint: str = ""


def title(run: Inputs) -> str:
    """The target and the table's short name."""
    return f"{clean(run.schema.target)} · {short_source(run.schema.source)}"


def short_source(source: str) -> str:
    """The last part of a path; any other name of a source as it is."""
    return PurePath(source).name or source


def facts(run: Inputs) -> list[Fact]:
    """Facts without a value are left out."""
    schema, cost, about = run.schema, run.results.cost, run.results.run
    refused = f" ({schema.rows_refused:,} refused: no target value)" if schema.rows_refused else ""
    classes = f", {len(schema.classes)} classes" if len(schema.classes) > 2 else ""
    kinds = f"{len(schema.numeric):,} numeric, {len(schema.categorical):,} categorical"
    gpus = [f"{count} × {name}" for name, count in Counter(about.host.gpus).items()]
    found = (
        Fact(name="table", text=short_source(schema.source), hint=schema.source),
        Fact(name="rows", text=f"{schema.rows:,}{refused}"),
        Fact(name="features", text=f"{len(schema.features):,}", hint=kinds),
        Fact(name="task", text=f"{schema.task}{classes}"),
        Fact(name="folds", text=str(schema.folds or "")),
        _machine(run, gpus) if run.plan.master is None else Fact(
            name="cluster", text=run.plan.reasons.get("devices", run.plan.master), hint=run.plan.master
        ),
        Fact(name="wall time", text=about.wall_text),
        Fact(
            name="device time", text=seconds_text(3600 * cost.device_hours),
            hint="The wall time of the run times the number of lanes.",
        ),
        Fact(name="GPU energy", text="" if cost.energy_wh is None else f"{number_text(cost.energy_wh)} Wh"),
        Fact(name="cost", text="" if cost.price is None else number_text(cost.price)),
        Fact(
            name="peak memory" if run.plan.master is None else "peak memory of the driver",
            text=gibibytes(about.peak_rss_bytes) if about.peak_rss_bytes else "",
        ),
    )  # fmt: skip
    return [fact for fact in found if fact.text]


def _machine(run: Inputs, gpus: Sequence[str]) -> Fact:
    host = run.results.run.host
    cores = counted(host.cores, "core")
    hint = ", ".join(text for text in (host.processor, cores, *gpus) if text)
    return Fact(name="machine", text=", ".join(gpus) or f"{cores}, no GPU", hint=hint)
