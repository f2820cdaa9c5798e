"""The file of a MOJO of H2O XGBoost: how it encodes rows, and what is added to it after H2O has written it.

H2O 3.46 writes categories that it got as numbers as numeric, so that its scoring library would ask its user
for the numbers. With the texts added as domains, the library reads texts and finds the numbers. And H2O
predicts with all trees grown until it stops, so the file is cut back to the best ones. The format is that of
``hex.genmodel.MojoModel``.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkgpu.h2o.booster_bytes import cut_booster, scaled_booster

BOOSTER = "boosterBytes"
"""The entry that holds the trees."""

_INI = "model.ini"


@dataclass(frozen=True, kw_only=True)
class Description:
    """Features in H2O's order: those with a booster's column for each level come first.

    There are `num_one_hot` of these, and `offsets` are the first columns of each, and of the numbers.
    `domains` are the texts of a feature in the order of H2O's numbers, for these and for those that became
    the positions of their levels. In a `sparse` model a 0 is not stored.
    """

    features: tuple[str, ...]
    num_one_hot: int
    offsets: tuple[int, ...]
    domains: Mapping[str, tuple[str, ...]]
    sparse: bool

    @property
    def width(self) -> int:
        """The number of the booster's columns."""
        return self.offsets[-1] + len(self.features) - self.num_one_hot


def read_description(mojo: zipfile.ZipFile) -> Description:
    """The description in an open MOJO."""
    head, columns, listed = _parts(mojo.read(_INI).decode("utf-8"))
    entries = dict(line.split(" = ", 1) for line in head.split("\n") if " = " in line)
    domains = {}
    for place, number, file in re.findall(r"^(\d+): (\d+) (\S+)$", "\n".join(listed), re.MULTILINE):
        lines = mojo.read(f"domains/{file}").decode("utf-8").split("\n")[: int(number)]
        if entries.get("escape_domain_values") == "true":
            lines = [_unescaped(line) for line in lines]
        domains[columns[int(place)]] = tuple(lines)
    return Description(
        features=tuple(columns[: int(entries["n_features"])]),
        num_one_hot=int(entries["cats"]),
        offsets=tuple(int(text) for text in entries["cat_offsets"].strip("[]").split(",")),
        domains=domains,
        sparse=entries["sparse"] == "true",
    )


def complete(
    file: Path, levels: Mapping[str, Sequence[str]], *, rounds: int | None, trees_per_round: int,
    unit: float = 1.0,
) -> None:  # fmt: skip
    """Name the `levels` of columns, in the order of their numbers, and keep only the first `rounds` of trees.

    A round has one tree per class if there are more than two classes. Predictions that are exponentials were
    learned in `unit`. Replaces `file` by its new form.
    """
    if not levels and rounds is None and unit == 1:
        return
    whole = file.with_suffix(".new")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            held = old.read(entry)
            if entry == _INI:
                text, added = _with_domains(held.decode("utf-8"), levels)
                if rounds is not None:
                    text = re.sub(r"^ntrees = \d+$", f"ntrees = {rounds}", text, flags=re.MULTILINE)
                held = text.encode()
            elif entry == BOOSTER:
                held = held if unit == 1 else scaled_booster(held, unit)
                held = held if rounds is None else cut_booster(held, rounds * trees_per_round)
            new.writestr(entry, held)
        for entry, texts in added.items():
            new.writestr(f"domains/{entry}", texts)
    whole.replace(file)


def _parts(text: str) -> tuple[str, list[str], list[str]]:
    head, _, rest = text.partition("\n[columns]\n")
    columns, _, domains = rest.partition("\n[domains]\n")
    return head, columns.strip("\n").split("\n"), [line for line in domains.split("\n") if line]


def _with_domains(text: str, levels: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, str]]:
    head, columns, lines = _parts(text)
    escapes = "escape_domain_values = true" in head
    files = {}
    for name, texts in levels.items():
        entry = f"d{len(lines):03d}.txt"
        lines.append(f"{columns.index(name)}: {len(texts)} {entry}")
        files[entry] = "".join(f"{_escaped(one) if escapes else one}\n" for one in texts)
    lines.sort(key=lambda line: int(line.partition(":")[0]))
    head = re.sub(r"^n_domains = \d+$", f"n_domains = {len(lines)}", head, flags=re.MULTILINE)
    listing, domains = "\n".join(columns), "\n".join(lines)
    return f"{head}\n[columns]\n{listing}\n\n[domains]\n{domains}\n", files


def _escaped(text: str) -> str:
    """As H2O's ``StringUtils.escapeNewlines``."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _unescaped(line: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], line)
