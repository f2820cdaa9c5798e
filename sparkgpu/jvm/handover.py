"""Passes many texts from Python to the JVM in one call; py4j alone needs a round trip for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView


def java_texts_by_column(java: JVMView, columns: Sequence[Sequence[str]]) -> Any:
    """The texts of each column as a Java ``String[][]``; the texts may contain any characters."""
    mapper = java.com.fasterxml.jackson.databind.ObjectMapper()
    text = json.dumps([list(texts) for texts in columns])
    return mapper.readValue(text, java.java.lang.Class.forName("[[Ljava.lang.String;"))
