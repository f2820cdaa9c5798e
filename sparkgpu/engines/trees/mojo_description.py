"""Reads how a MOJO of H2O XGBoost encodes rows: its features in order, and the words of its categories."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Description:
    """Features in H2O's order: those with a booster's column for each level come first.

    There are `num_words` of these, and `offsets` are the first columns of each, and of the numbers.
    `domains` are the words of a feature in the order of H2O's numbers, for these and for those that became
    the places of their levels. In a `sparse` model a 0 is not stored.
    """

    features: tuple[str, ...]
    num_words: int
    offsets: tuple[int, ...]
    domains: Mapping[str, tuple[str, ...]]
    sparse: bool

    @property
    def width(self) -> int:
        """The number of the booster's columns."""
        return self.offsets[-1] + len(self.features) - self.num_words


def read_description(mojo: zipfile.ZipFile) -> Description:
    """The description in an open MOJO; the format is that of ``hex.genmodel.MojoModel``."""
    head, _, rest = mojo.read("model.ini").decode("utf-8").partition("\n[columns]\n")
    columns_text, _, domains_text = rest.partition("\n[domains]\n")
    entries = dict(line.split(" = ", 1) for line in head.split("\n") if " = " in line)
    columns = columns_text.strip("\n").split("\n")
    domains = {}
    for place, number, file in re.findall(r"^(\d+): (\d+) (\S+)$", domains_text, re.MULTILINE):
        lines = mojo.read(f"domains/{file}").decode("utf-8").split("\n")[: int(number)]
        if entries.get("escape_domain_values") == "true":
            lines = [_unescaped(line) for line in lines]
        domains[columns[int(place)]] = tuple(lines)
    return Description(
        features=tuple(columns[: int(entries["n_features"])]),
        num_words=int(entries["cats"]),
        offsets=tuple(int(text) for text in entries["cat_offsets"].strip("[]").split(",")),
        domains=domains,
        sparse=entries["sparse"] == "true",
    )


def _unescaped(line: str) -> str:
    """The reverse of H2O's ``StringUtils.escapeNewlines``."""
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], line)
