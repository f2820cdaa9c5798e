"""Numbers and dates in the table's own spelling (`data.decimal`, `data.date_format`), spelled as usual.

Rows of training come here from the parser of text tables, and new rows, in whatever they are stored, from
the encoder. Texts in another form stay unreadable: they are never read as another number or day. No pyspark.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from sparkgpu.core.table.dialect import Dialect
from sparkgpu.prepare.column_values import BLANKS, decoded, is_text
from sparkgpu.prepare.columns import TIME_TYPES, is_number

_GROUPED = r"^[+-]?[0-9]{1,3}([.][0-9]{3})+(,[0-9]*)?$"
_PADDING = r"(^|[^0-9])0+([0-9])"
_FIRST_YEAR = 1000  # C's strptime takes "24" for the year 24


def spelled(column: pa.Array | pa.ChunkedArray, kind: str, dialect: Dialect) -> pa.Array | pa.ChunkedArray:
    """A column for values of type `kind` (Spark's spelling), with its texts as the program writes them."""
    if not is_text(column.type):
        return column
    if dialect.decimal == "," and is_number(kind):
        return _with_points(decoded(column).cast(pa.string()))
    if dialect.date_format is not None and kind in TIME_TYPES:
        return _with_iso_dates(decoded(column).cast(pa.string()), dialect.date_format)
    return column


def _with_points(texts: pa.Array) -> pa.Array:
    """Decimal commas as points; without the points between thousands, or with a mark that no number has."""
    texts = pc.utf8_trim(texts, BLANKS)
    is_grouped = pc.match_substring_regex(texts, _GROUPED)
    texts = pc.replace_substring(texts, ".", "'")
    texts = pc.if_else(is_grouped, pc.replace_substring(texts, "'", ""), texts)
    return pc.utf8_ltrim(pc.replace_substring(texts, ",", "."), "+")


def _with_iso_dates(texts: pa.Array, date_format: str) -> pa.Array:
    """Texts in this format by ISO 8601, the others as they are."""
    found = pc.strptime(texts, format=date_format, unit="s", error_is_null=True)
    # It takes the 31st of February for the 2nd of March, which is then written in another way.
    is_same = pc.equal(_unpadded(pc.strftime(found, format=date_format)), _unpadded(texts))
    is_date = pc.and_(is_same, pc.greater_equal(pc.year(found), _FIRST_YEAR))
    iso = pc.strftime(found, format="%Y-%m-%dT%H:%M:%S" if has_time(date_format) else "%Y-%m-%d")
    return pc.if_else(pc.fill_null(is_date, False), iso, texts)


def _unpadded(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(pc.utf8_lower(texts), _PADDING, r"\1\2")


def has_time(date_format: str) -> bool:
    return re.search("%[HIMSp]", date_format) is not None
