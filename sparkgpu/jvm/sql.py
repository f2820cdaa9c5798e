"""Names and texts as Spark's SQL writes them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A column name as SQL writes it, whatever characters it holds."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
