"""``doctor.json`` for programs, and ``doctor.md``, a page that fits a bug report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparkgpu.doctor.check import Check, Status, worst
from sparkgpu.rundir.files import Record, write_json, write_text

JSON, PAGE = "doctor.json", "doctor.md"
_SIGNS: dict[Status, str] = {"ok": "ok", "warning": "WARNING", "failure": "FAILURE", "not tried": "–"}


class DoctorReport(Record):
    """What ``sparkgpu doctor`` found. `deep` is empty if nothing was trained."""

    sparkgpu: str
    at: str
    system: str
    machine: tuple[Check, ...]
    deep: tuple[Check, ...] = ()
    seconds: float

    @property
    def status(self) -> Status:
        return worst([*self.machine, *self.deep])


def write_report(folder: Path, report: DoctorReport) -> Path:
    """Write both files into `folder`; the page's path is returned."""
    write_json(folder / JSON, report)
    page = folder / PAGE
    write_text(page, as_markdown(report))
    return page


def as_markdown(report: DoctorReport) -> str:
    lines = [
        f"# sparkgpu doctor: {report.status}",
        "",
        f"sparkgpu {report.sparkgpu}, {report.system}, {report.at}, {report.seconds:.0f} s",
        "",
        *_table("Machine", report.machine),
    ]
    if report.deep:
        lines += ["", *_table("Trained", report.deep)]
    return "\n".join(lines) + "\n"


def _table(title: str, checks: Sequence[Check]) -> list[str]:
    rows = [
        f"| {_cell(check.name)} | {_SIGNS[check.status]} | {_cell(check.found)} | {_cell(check.fix)} |"
        for check in checks
    ]
    return [f"## {title}", "", "| what | | found | the fix |", "|---|---|---|---|", *rows]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
