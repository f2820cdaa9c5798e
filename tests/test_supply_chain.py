"""What SECURITY.md says of packages: CI asks about all of them, and its actions are held by commit."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"


def test_ci_asks_about_every_tested_package_and_leaves_out_only_the_holes_that_are_shut_for_all() -> None:
    audit = (WORKFLOWS / "ci.yml").read_text().partition("tools/bin/pip-audit --strict")[2]
    assert re.findall(r"-r (\S+)", audit) == ["env/constraints.txt"]
    left_out = re.findall(r"--ignore-vuln (\S+)", audit)
    (row,) = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if "shut for all" in line]
    assert left_out == re.findall(r"CVE-\d+-\d+", row.partition("and the earlier")[0]) != []
    asked = (ROOT / "tests" / "h2o" / "test_h2o_doors.py").read_text()
    assert [hole for hole in left_out if hole not in asked] == []


def test_actions_are_held_by_commit() -> None:
    used = re.findall(r"uses: (\S+)", "".join(file.read_text() for file in WORKFLOWS.iterdir()))
    assert used and [action for action in used if not re.search(r"@[0-9a-f]{40}$", action)] == []
