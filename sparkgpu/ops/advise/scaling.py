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

MODELLED = ("lanes", "dp", "ddp", "fsdp")
"""The ways to use several devices that the model knows; ``lanes`` train one network each."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """What connects two devices; `origin` tells whether it was measured here, given, or assumed."""

    bytes_per_s: float
    latency_s: float
    origin: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of `batch` rows on one device: `fixed_s`, and `row_s` for each row.

    With `shared_cores` several devices are lanes of the same cores.
    """

    fixed_s: float
    row_s: float
    batch: int
    weight_bytes: int
    link: Link
    shared_cores: bool = False

    def seconds(self, strategy: str = "lanes", devices: int = 1) -> float:
        """The seconds of one step over so many devices; each of the lanes takes steps of its own."""
        divided = strategy != "lanes" and not self.shared_cores
        rows = -(-self.batch // devices) if divided else self.batch
        return self.fixed_s + self.row_s * rows + self.communication_s(strategy, devices)

    def communication_s(self, strategy: str, devices: int) -> float:
        """The seconds of a step in which devices exchange weights."""
        if devices < 2 or strategy == "lanes":
            return 0.0
        passes = 3 if strategy == "fsdp" else 2
        volume = passes * (devices - 1) * self.weight_bytes / (1 if strategy == "dp" else devices)
        return passes * (devices - 1) * self.link.latency_s + volume / self.link.bytes_per_s

    def speed_up(self, strategy: str, devices: int) -> float:
        """Rows per second over those of one device; between 0 and `devices`."""
        if strategy == "lanes":
            return 1.0 if self.shared_cores else float(devices)
        return self.seconds() / self.seconds(strategy, devices)


def fitted(large: tuple[int, float], small: tuple[int, float]) -> tuple[float, float]:
    """`fixed_s` and `row_s` from two measured steps (rows, seconds): not negative, whatever the noise."""
    (many, many_s), (few, few_s) = large, small
    row_s = (many_s - few_s) / (many - few) if many > few else many_s / many
    row_s = min(max(row_s, 0.0), many_s / many)
    return max(0.0, many_s - row_s * many), row_s
