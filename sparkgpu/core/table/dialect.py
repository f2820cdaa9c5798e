"""How a text table is written, where it differs from the rules of docs/configuration.md."""

from __future__ import annotations

from typing import Self

from sparkgpu.core.config.keys import DataConfig
from sparkgpu.core.rundir.files import Record


class Dialect(Record):
    """The keys of ``[data]`` with these names; None is what those rules say.

    `codes` are the columns that the user calls categories: with leading zeros they hold texts, not numbers.
    """

    separator: str | None = None
    decimal: str | None = None
    date_format: str | None = None
    encoding: str | None = None
    codes: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: DataConfig) -> Self:
        codes = tuple(name for name, role in config.roles.items() if role == "categorical")
        return cls(**config.model_dump(include=set(cls.model_fields)), codes=codes)

    @property
    def decimal_point(self) -> str:
        return self.decimal or "."
