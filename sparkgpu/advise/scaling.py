"""The time of one training step on several devices: a stated model, and pure arithmetic.

    step(n) = fixed + row * ceil(batch / n) + communication(n)

`fixed` and `row` come from two measured batch sizes on one device; a step on the same cores, whatever the
number of lanes, is not divided. Communication for B bytes of weights over a link of `bytes_per_s` and
`latency_s` (nothing of it is hidden behind the computation, though ddp hides a part):

    ddp    2 (n - 1) latency + 2 (n - 1) / n * B / bytes_per_s         a ring all-reduce [1]
    fsdp   3 (n - 1) latency + 3 (n - 1) / n * B / bytes_per_s         two all-gathers, one reduce-scatter [2]
    dp     2 (n - 1) latency + 2 (n - 1) * B / bytes_per_s             one process serves all in turn

[1] Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009. [2] Zhao et al., PyTorch FSDP,
VLDB 2023: each rank gathers the weights forward and backward, and scatters the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Modelled = Literal["single", "lanes", "dp", "ddp", "fsdp"]
MODELLED: tuple[Modelled, ...] = ("single", "lanes", "dp", "ddp", "fsdp")


@dataclass(frozen=True, kw_only=True)
class Link:
    """What connects two devices; `origin` tells whether it was measured here, given, or assumed."""

    bytes_per_s: float
    latency_s: float
    origin: str


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """A step on one device: `fixed_s`, and `row_s` for each row of the batch."""

    fixed_s: float
    row_s: float

    @classmethod
    def of(cls, large: tuple[int, float], small: tuple[int, float]) -> StepCost:
        """From two measured steps, as (rows, seconds). Neither part is negative, whatever the noise."""
        (many, many_s), (few, few_s) = large, small
        row_s = (many_s - few_s) / (many - few) if many > few else many_s / many
        row_s = min(max(row_s, 0.0), many_s / many)
        return cls(fixed_s=max(0.0, many_s - row_s * many), row_s=row_s)

    def step_s(self, rows: int) -> float:
        return self.fixed_s + self.row_s * rows


def communication_s(strategy: Modelled, weight_bytes: int, devices: int, link: Link) -> float:
    """The seconds that a step of `strategy` spends on communication."""
    if devices < 2 or strategy in ("single", "lanes"):
        return 0.0
    passes = 3 if strategy == "fsdp" else 2
    volume = passes * (devices - 1) * weight_bytes / (1 if strategy == "dp" else devices)
    return passes * (devices - 1) * link.latency_s + volume / link.bytes_per_s


def step_s(
    strategy: Modelled,
    cost: StepCost,
    *,
    batch: int,
    weight_bytes: int,
    devices: int,
    link: Link,
    shared_cores: bool = False,
) -> float:
    """One step of a batch of `batch` rows. With `shared_cores` the devices are lanes of the same cores."""
    alone = strategy in ("single", "lanes") or devices < 2
    rows = batch if alone or shared_cores else -(-batch // devices)
    return cost.step_s(rows) + communication_s(strategy, weight_bytes, devices, link)


def speed_up(
    strategy: Modelled,
    cost: StepCost,
    *,
    batch: int,
    weight_bytes: int,
    devices: int,
    link: Link,
    shared_cores: bool = False,
) -> float:
    """Rows per second over those of one device; between 0 and `devices`. Lanes train one network each."""
    one = cost.step_s(batch)
    if strategy == "lanes":
        return 1.0 if shared_cores else float(devices)
    return one / step_s(
        strategy, cost, batch=batch, weight_bytes=weight_bytes, devices=devices, link=link,
        shared_cores=shared_cores,
    )  # fmt: skip
