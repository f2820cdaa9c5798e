"""The builds of torch, and which of them trains on the GPUs of a machine: pure functions of driver and cards.

The table is of torch 2.13 for Linux on x86_64. Its sources:

- CUDA 12.6, 13.0 and 13.2: PyTorch's RELEASE.md, "PyTorch CUDA Support Matrix" (its pull requests 182849 and
  197555: releases 2.12 to 2.14 are alike); 12.9, for Linux only: pytorch/test-infra 8215, pytorch 186015;
- the build on PyPI, read from its file: CUDA 13.0, machine code of 7.5, 8.0, 8.6, 9.0, 10.0 and 12.0, no PTX;
- drivers: NVIDIA's "CUDA Compatibility", minor version compatibility: CUDA 12 runs from branch 525 on and
  CUDA 13 from branch 580 on;
- cards of Blackwell: NVIDIA's MIG user guide: branch 570 (570.133.20 for B200).

Code of a capability runs on cards with the same first number and the same or a greater second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkgpu.core.host.gpus import Gpu
from sparkgpu.core.words import listed

TORCH = "2.13"
"""The version that the table is of."""

_INDEX = "https://download.pytorch.org/whl/"
_DRIVERS = {12: 525, 13: 580}
"""The oldest branch of the driver that runs a CUDA."""

_BLACKWELL, _BLACKWELL_DRIVER = (10, 0), 570

Capability = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """A build of torch: its CUDA, the capabilities it has code for, and whether it is the one on PyPI."""

    cuda: tuple[int, int]
    code: tuple[Capability, ...]
    on_pypi: bool = False

    @property
    def name(self) -> str:
        return f"cu{self.cuda[0]}{self.cuda[1]}"

    @property
    def driver(self) -> int:
        return _DRIVERS[self.cuda[0]]

    @property
    def index(self) -> str:
        return _INDEX + self.name

    def runs_on(self, capability: Capability | None) -> bool:
        """Whether it has code for a card; where the driver does not tell, it is taken to have."""
        return capability is None or any(_runs(own, capability) for own in self.code)

    def requirement(self, version: str) -> str:
        """What pip is asked for, with where to look. ``===`` keeps builds without CUDA out."""
        if self.on_pypi:
            return f"torch==={version}"
        return f"torch=={version}+{self.name} --extra-index-url {self.index}"


_SINCE_TURING: tuple[Capability, ...] = ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))

TORCH_BUILDS = (
    TorchBuild(cuda=(13, 0), code=_SINCE_TURING, on_pypi=True),
    TorchBuild(cuda=(12, 6), code=((5, 0), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0))),
    TorchBuild(cuda=(12, 9), code=_SINCE_TURING),
    TorchBuild(cuda=(13, 2), code=_SINCE_TURING),
)
"""In the order in which they are preferred."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The build for a machine (None: no build runs there), why, and the cards that it has no code for."""

    build: TorchBuild | None
    why: str
    without: tuple[Gpu, ...] = ()


def choose_build(cards: Sequence[Gpu], driver: str | None) -> Choice:
    """The build that trains on most of the usable `cards`, of which there is at least one."""
    branch = branch_of(driver)
    if refusal := needs_newer_driver(cards, driver):
        return Choice(build=None, why=refusal, without=tuple(cards))
    found = max(
        (build for build in TORCH_BUILDS if branch >= build.driver),
        key=lambda build: sum(build.runs_on(card.compute_capability) for card in cards),
    )
    without = tuple(card for card in cards if not found.runs_on(card.compute_capability))
    if len(without) == len(cards):
        return Choice(
            build=None, why=f"no build of torch {TORCH} has code for {named(cards)}", without=without
        )
    served = [card for card in cards if card not in without]
    preferred = TORCH_BUILDS[0]
    if branch < preferred.driver:
        why = f"driver {driver} runs no CUDA {preferred.cuda[0]}"
    elif found is not preferred:
        missed = [card for card in served if not preferred.runs_on(card.compute_capability)]
        why = f"that for CUDA {dotted(preferred.cuda)} has no code for {named(missed)}"
    else:
        why = f"driver {driver or 'of unknown version'} runs it"
    why += f", and this one has code for {named(served)}"
    return Choice(build=found, why=why + _left_out(without), without=without)


def needs_newer_driver(cards: Sequence[Gpu], driver: str | None) -> str:
    """What to say if the driver is older than every build, or any of the cards, needs; else nothing."""
    needed = newest_needed(cards)
    if branch_of(driver) >= needed:
        return ""
    what = "the card" if needed == _BLACKWELL_DRIVER else f"any build of torch {TORCH}"
    return f"driver {driver} is older than {what} needs ({needed} or newer)"


def has_code(architectures: Sequence[str], capability: Capability) -> bool:
    """Whether one of torch's `architectures`, ``sm_75`` or, for PTX, ``compute_90``, runs on a card."""
    for name in architectures:
        kind, _, digits = name.partition("_")
        own = (int(digits[:-1]), int(digits[-1])) if digits.isdecimal() else (99, 0)  # sm_90a: 9.0 alone
        if (kind == "compute" and capability >= own) or _runs(own, capability):
            return True
    return False


def _runs(code: Capability, card: Capability) -> bool:
    return code[0] == card[0] and code[1] <= card[1]


def newest_needed(cards: Sequence[Gpu]) -> int:
    """The branch of the driver that these cards need."""
    new = any((card.compute_capability or (0, 0)) >= _BLACKWELL for card in cards)
    return _BLACKWELL_DRIVER if new else min(_DRIVERS.values())


def _left_out(without: Sequence[Gpu]) -> str:
    return f"; none for {named(without)}, which runs must leave out (--gpus)" if without else ""


def branch_of(driver: str | None) -> int:
    """The branch of a driver's version, such as 550; an unknown one counts as new."""
    first = (driver or "").partition(".")[0]
    return int(first) if first.isdecimal() else max(_DRIVERS.values())


def oldest_driver(cuda: tuple[int, int]) -> int:
    """The branch that a build of any version of torch needs."""
    return _DRIVERS.get(cuda[0], min(_DRIVERS.values()))


def named(cards: Sequence[Gpu]) -> str:
    """Each kind of card with its compute capability."""
    return listed(
        dict.fromkeys(
            f"{card.title} ({dotted(card.compute_capability)})" if card.compute_capability else card.title
            for card in cards
        )
    )


def dotted(version: tuple[int, int] | None) -> str:
    return "unknown" if version is None else f"{version[0]}.{version[1]}"
