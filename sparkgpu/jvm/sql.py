"""Names and texts in the syntax of Spark's SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A column name in SQL syntax; it may contain any characters."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """A text in SQL syntax."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
