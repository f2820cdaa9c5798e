"""The models of runs as entries of a leaderboard: what each reached, what it took, how it compares.

A model's value is that of its trials' averaged predictions, which is what predicts and what is compared. Its
times are means over its trials, its device time and cost are sums; a blend takes what its members take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from sparkgpu.core.config.registry.engines import branch_of
from sparkgpu.core.rundir.metrics_json import DoneTrial, MetricValues, ModelResult, Results
from sparkgpu.core.words import counted, number_text
from sparkgpu.score.compare import Comparison, Interval
from sparkgpu.score.metrics import score

Split = Literal["valid", "test"]

UNITS = {"trees": "tree", "neural": "epoch"}
"""What a step of training is, by branch."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model of a run; `ci95` is the interval of its primary metric on the test rows.

    Beside other runs, `difference` compares it with the reference in pairs of rows: None for the reference
    itself and if the predictions of either are gone.
    """

    results: Results
    model: ModelResult
    run: str = ""
    ci95: Interval = (None, None)
    difference: Comparison | None = None
    is_reference: bool = False

    @property
    def name(self) -> str:
        return self.model.name

    def metrics(self, split: Split = "test") -> MetricValues:
        return (self.model.averaged or self.model.metrics).of(split)

    @property
    def value(self) -> float | None:
        """The primary metric on the test rows."""
        return self.metrics().get(self.results.comparison.metric)

    @property
    def trials(self) -> tuple[DoneTrial, ...]:
        """The finished ones; a blend has none of its own."""
        return self.results.done(self.name)

    @property
    def fit_s(self) -> float | None:
        """The mean over the trials, as `predict_s`."""
        return mean(trial.fit_s for trial in self.trials) if self.trials else None

    @property
    def predict_s(self) -> float | None:
        return mean(trial.predict_s for trial in self.trials) if self.trials else None

    def as_dict(self) -> dict[str, object]:
        """What a leaderboard says of it, for programs."""
        found = self.difference
        return {
            "model": self.name,
            "run": self.run,
            "value": self.value,
            "ci95": self.ci95,
            "verdict": self.verdict,
            "difference": found and {"value": found.difference, "ci95": found.ci95},
            "fit_s": self.fit_s,
            "predict_s": self.predict_s,
            "metrics": self.metrics(),
        }

    @property
    def trained(self) -> str:
        """How far the longest trial trained: ``340 of 1,500 trees``; empty if its engine does not tell."""
        known = [trial for trial in self.trials if trial.steps and trial.most_steps]
        if not known:
            return ""
        longest = max(known, key=lambda trial: trial.steps or 0)
        unit = UNITS[branch_of(longest.engine)]
        return f"{longest.steps:,} of {counted(longest.most_steps or 0, unit)}"

    @property
    def made_of(self) -> str:
        """The engine and its trials, or the shares of a blend."""
        if self.model.weights:
            shares = ((name, share) for name, share in self.model.weights.items() if share)
            return " + ".join(f"{number_text(share, 2)} {name}" for name, share in shares)
        trials = counted(len(self.trials), "trial")
        return f"{self.model.engine}, {trials}" if self.model.engine else trials

    @property
    def members(self) -> tuple[DoneTrial, ...]:
        """The trials that predict for it: of a blend, those of the models that have a share."""
        weights = self.model.weights or {self.name: 1.0}
        return tuple(trial for name, share in weights.items() if share for trial in self.results.done(name))

    @property
    def used_s(self) -> float | None:
        """Seconds of all devices."""
        taken = [(trial.fit_s + trial.predict_s) * len(trial.devices) for trial in self.members]
        return sum(taken) if taken else None

    @property
    def cost(self) -> float | None:
        cost, used_s = self.results.cost, self.used_s
        if cost.price is None or used_s is None:
            return None
        return cost.price / (cost.device_hours or math.inf) * used_s / 3600

    @property
    def verdict(self) -> str:
        """What `difference` means."""
        if self.is_reference:
            return "reference"
        if self.difference is None:
            return "not compared: its predictions are gone"
        if self.difference.ci95[0] is None:
            return f"not told apart: {self.difference.reason}"
        equal = "equal" if self.difference.reason else "tie"
        return {"a": "better", "b": "worse", "tie": equal}[self.difference.verdict]


def entries(found: Results, run: str = "", intervals: Mapping[str, Interval] | None = None) -> list[Entry]:
    """All models of a run, in its order; not trees or network that its configuration leaves out."""
    known = intervals or {}
    return [
        Entry(results=found, model=model, run=run, ci95=known.get(model.name, (None, None)))
        for model in found.models
        if model.status != "left out"
    ]


def ranked(metric: str, of: Iterable[Entry], split: Split = "test") -> list[Entry]:
    """The best first, those without a value last."""

    def place(entry: Entry) -> float:
        value = entry.metrics(split).get(metric)
        return math.inf if value is None else -score(metric, value)

    return sorted(of, key=place)


def contestants(of: Iterable[Entry]) -> list[Entry]:
    """Those with a value; no blend that is one model again."""
    return [one for one in of if one.model.only is None and one.value is not None]
