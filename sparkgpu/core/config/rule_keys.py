"""The configuration of what models must keep, and how they decide: ``[rules]`` and ``[decision]``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sparkgpu.core.config.registry.engines import Rule
from sparkgpu.core.config.values import Section


class DecisionConfig(Section):
    """``[decision]``: which class a probability becomes; without it, the most probable one.

    With two classes `rule` chooses a threshold on the validation rows: ``f1``, ``accuracy``,
    ``balanced_accuracy``, ``recall>=0.8`` (with the highest precision), ``precision>=0.9`` (with the highest
    recall), or ``cost``. Recall, precision and F1 are of the class `positive` (default: the second in order).
    `costs` are what decisions cost, by the true class, then by the class decided for.
    """

    rule: str | None = None
    positive: str | None = None
    costs: dict[str, dict[str, float]] = Field(default_factory=dict)


class RulesConfig(Section):
    """``[rules]``: what every model of the run must keep.

    As a column in `monotone` grows and all others stay, a prediction never falls (``increasing``) or never
    grows (``decreasing``); with two classes that is the probability of the second. Columns meet in one tree
    only within a group of `interactions`; those in none of them form a further group. Models that cannot keep
    such a rule do not train. The columns in `without` are no features: the run only says how well the
    features tell them, and how predictions differ between their values.
    """

    monotone: dict[str, Literal["increasing", "decreasing"]] = Field(default_factory=dict)
    interactions: tuple[tuple[str, ...], ...] = ()
    without: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[Rule, ...]:
        """The rules that only some engines can keep."""
        both: tuple[tuple[Rule, object], ...] = (
            ("monotone", self.monotone),
            ("interactions", self.interactions),
        )
        return tuple(name for name, given in both if given)
