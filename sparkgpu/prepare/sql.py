"""Names in the syntax of Spark's SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A column name in SQL syntax; it may contain any characters."""
    return "`" + name.replace("`", "``") + "`"
