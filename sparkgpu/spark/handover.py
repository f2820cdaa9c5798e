"""Many texts from Python to the JVM in one call; py4j itself takes a round trip for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java_texts(session: SparkSession, texts: Sequence[str]) -> Any:
    """`texts` as a Java ``List<String>``, whatever characters they hold."""
    return _java_value(session, list(texts), "java.util.List")


def java_texts_by_column(session: SparkSession, columns: Sequence[Sequence[str]]) -> Any:
    """The texts of each column as a Java ``String[][]``."""
    return _java_value(session, [list(texts) for texts in columns], "[[Ljava.lang.String;")


def _java_value(session: SparkSession, value: Any, java_class: str) -> Any:
    java = session.sparkContext._jvm
    assert java is not None
    mapper = java.com.fasterxml.jackson.databind.ObjectMapper()
    return mapper.readValue(json.dumps(value), java.java.lang.Class.forName(java_class))
