"""Gives a MOJO the words of categories that H2O encoded as the numbers of their levels.

H2O 3.46 writes such columns as numeric, so that its scoring library would ask its user for the numbers. With
the words added as domains (the format of ``hex.genmodel.MojoModel``), it reads words and finds the numbers.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_INI = "model.ini"


def name_levels(file: Path, levels: Mapping[str, Sequence[str]]) -> None:
    """Add the `levels` of each column, in the order of their numbers; replaces `file` by its new form."""
    if not levels:
        return
    whole = file.with_suffix(".new")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            if entry != _INI:
                new.writestr(entry, old.read(entry))
        text, files = _with_domains(old.read(_INI).decode("utf-8"), levels)
        new.writestr(_INI, text)
        for entry, words in files.items():
            new.writestr(f"domains/{entry}", words)
    whole.replace(file)


def _with_domains(text: str, levels: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, str]]:
    """The description with the new domains, and their files by name."""
    head, _, rest = text.partition("\n[columns]\n")
    listed, _, domains = rest.partition("\n[domains]\n")
    columns = listed.strip("\n").split("\n")
    escapes = "escape_domain_values = true" in head
    lines, files = [line for line in domains.split("\n") if line], {}
    for name, words in levels.items():
        entry = f"d{len(lines):03d}.txt"
        lines.append(f"{columns.index(name)}: {len(words)} {entry}")
        files[entry] = "".join(f"{_escaped(word) if escapes else word}\n" for word in words)
    lines.sort(key=lambda line: int(line.partition(":")[0]))
    head = re.sub(r"^n_domains = \d+$", f"n_domains = {len(lines)}", head, flags=re.MULTILINE)
    listing, domains = "\n".join(columns), "\n".join(lines)
    return f"{head}\n[columns]\n{listing}\n\n[domains]\n{domains}\n", files


def _escaped(word: str) -> str:
    """One line; so does H2O's ``StringUtils.escapeNewlines``."""
    return word.replace("\\", "\\\\").replace("\n", "\\n")
