"""The header of a local CSV table: its delimiter and the names of its columns."""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import dataclass

from sparkgpu.errors import DataError
from sparkgpu.prepare.formats.text_files import open_text, refusing_other_text, text_files
from sparkgpu.table.source import Source
from sparkgpu.words import listed


@dataclass(frozen=True, kw_only=True)
class CsvHeader:
    """One of ``, ; | tab``, and the columns in order; none where no file can be opened here."""

    delimiter: str = ","
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The names in a table: Spark calls a column without a name by its place."""
        return [name or f"_c{place}" for place, name in enumerate(self.names)]


def check_headers(source: Source) -> CsvHeader:
    """Refuse duplicate column names and files with different headers. Returns the header of all.

    Spark would silently rename duplicates, and read files with other headers by position.
    """
    first: CsvHeader | None = None
    first_file = ""
    for path in text_files(source):
        with refusing_other_text(source), open_text(path) as file:
            line = next((line for line in file if line.strip()), "")
        outside = re.sub(r'"[^"]*"', "", line)
        delimiter = max(",;\t|", key=outside.count) if any(mark in outside for mark in ",;\t|") else ","
        names = tuple(next(csv.reader([line], delimiter=delimiter), []))
        if first is None:
            first, first_file = CsvHeader(delimiter=delimiter, names=names), path.name
            twice = [name for name, count in Counter(names).items() if count > 1 and name]
            if twice:
                raise DataError(
                    f"{source.name}: duplicate column names: {listed(twice)}. Give each column one name."
                )
        elif names != first.names:
            raise DataError(
                f"{source.name}: the header of {path.name} differs from {first_file}. Give all files the "
                "same columns in the same order."
            )
    return first or CsvHeader()
