"""A notebook as a page: its texts and code, and the outputs that it holds. Nothing is run here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def page(file: Path) -> str:
    """The Markdown of one notebook, its pictures inside."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *(_output(output) for output in cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    """The richest form that needs no script."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<p><img alt="the picture that this cell draws" src="data:image/png;base64,{picture}"></p>'
    if "text/html" in data:
        text = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        text = re.sub(r"<table[^>]*>", "<table>", text)  # the site has its own style
        inside = re.sub(r"\s*\n\s*", " ", text)  # a blank line would end the block
        return f'<div class="output">{inside}</div>'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f'```text title="Output"\n{text.rstrip()}\n```'
