"""The cases of a bench, one after the other: says how long they take, and makes a table after each.

Limit: the time before the first case is an estimate from arithmetic alone; later ones take that case as their
measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sparkgpu.advise.bench.rows import measured_rows
from sparkgpu.advise.bench.train import Case, Measured, Prepared, planned_s, train
from sparkgpu.config.keys import RunConfig
from sparkgpu.config.registry.strategies import STRATEGIES
from sparkgpu.host.devices import Device, Machine
from sparkgpu.host.other_work import DISTURBING_SHARE
from sparkgpu.rundir.bench import BenchRecord
from sparkgpu.words import counted, seconds_text

Tell = Callable[[str], None]


class Series:
    """What the cases of one bench share, and what was `found` so far."""

    def __init__(
        self,
        config: RunConfig,
        prepared: Prepared,
        devices: Sequence[Device],
        machine: Machine,
        folder: Path,
        tell: Tell,
    ) -> None:
        self._config, self._prepared, self._folder, self._tell = config, prepared, folder, tell
        self._devices, self._machine = devices, machine
        self._on_cpu = devices[0].kind == "cpu"
        self.found: list[Measured] = []

    def tables(
        self, title: str, cases: Sequence[Case], price: float | None, notes: Sequence[str]
    ) -> Iterator[BenchRecord]:
        """Train every case and yield the table after each of them."""
        for place, case in enumerate(cases):
            left = seconds_text(sum(map(self._expected_s, cases[place:])))
            when = f"{counted(len(cases), 'configuration')}, about {left} in all" if not place else (
                f"{place + 1} of {len(cases)}, about {left} left"
            )  # fmt: skip
            self._tell(f"training: {case.name} on {counted(case.devices, 'device')} ({when})")
            self.found.append(self.trained(case))
            yield self.table(title, cases, price, notes)

    def table(
        self, title: str, cases: Sequence[Case], price: float | None, notes: Sequence[str]
    ) -> BenchRecord:
        """The table of what was found so far."""
        rows = measured_rows(self.found, cores=self._machine.cores, on_cpu=self._on_cpu, price=price)
        said = [*self._notes(), *notes]
        if any(row.is_disturbed for row in rows):
            said.append(
                f"figures with a question mark are not to be believed: other work took more than "
                f"{DISTURBING_SHARE:.0%} of the cores while they, or the first row, were timed"
            )
        if missing := len(cases) - len(rows):
            said.append(f"not finished: {missing} of {counted(len(cases), 'configuration')} are missing")
        return BenchRecord(title=title, rows=tuple(rows), notes=tuple(said))

    def trained(self, case: Case) -> Measured:
        """Train one case."""
        name = f"{case.name.replace(' ', '-').replace(',', '')}-{case.devices}"
        devices = self._devices[: case.devices]
        return train(case, self._config, self._prepared, devices, self._machine, self._folder / name)

    def _expected_s(self, case: Case) -> float:
        networks = 1 if STRATEGIES.find(case.strategy).is_gang else case.devices
        on_same = networks if self._on_cpu else 1  # that many networks train on the same cores
        if self.found:
            return self.found[0].wall_s * on_same
        return planned_s(self._config, self._prepared, self._machine, on_cpu=self._on_cpu) * on_same

    def _notes(self) -> list[str]:
        schema, first = self._prepared.schema, self.found[0]
        return [
            f"{schema.source}: {first.train_rows:,} training rows, {len(schema.features)} features; time is "
            f"one pass over them, the median of {first.epochs - 1} after a first one",
            f"the network has {first.parameters:,} weights and trains in batches of {first.batch:,} rows, "
            "which the devices of one network share; lanes train one network each, and their rows per second "
            "are added",
            f"{counted(self._machine.cores, 'core')}, "
            + ("no GPU was used" if self._on_cpu else self._devices[0].title),
        ]
