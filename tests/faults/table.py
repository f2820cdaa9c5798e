"""``python -m tests.faults.table FILE...``: the recorded cases as a table of Markdown, a row for each fault.

Of a case that was tried several times the last one counts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def table(files: list[Path]) -> str:
    """The rows, with the outcomes and the seconds in the order of their phases."""
    cases: dict[str, dict[str, dict[str, object]]] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            cases.setdefault(case["fault"], {})[case["phase"]] = case
    rows = ["| fault | when | outcome | exit code | seconds |", "|---|---|---|---|---|"]
    for fault, phases in cases.items():
        parts = [
            _joined(case.get(key, "-") for case in phases.values()) for key in ("outcome", "code", "seconds")
        ]
        rows.append(f"| {fault} | {', '.join(phases)} | {' | '.join(parts)} |")
    return "\n".join(rows)


def _joined(values: object) -> str:
    words = [str(value) for value in values]  # type: ignore[attr-defined]
    return words[0] if len(set(words)) == 1 else ", ".join(words)


if __name__ == "__main__":
    print(table([Path(name) for name in sys.argv[1:]]))
