"""What the doctor found: its checks, and ``doctor.json`` and ``doctor.md``, a page that fits a bug report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from rich.text import Text

from sparkgpu.core.rundir.files import Record, write_json, write_text
from sparkgpu.core.words import clean
from sparkgpu.present.table_model import markdown, table_of

Status = Literal["ok", "warning", "failure", "not tried"]
_SIGNS: dict[Status, str] = {"ok": "ok", "warning": "WARNING", "failure": "FAILURE"}
_PROOFS: dict[Status, str] = {
    "ok": "proved", "warning": "refuted, and a run goes on", "failure": "REFUTED", "not tried": "not tried"
}  # fmt: skip
_STYLES: dict[Status, str] = {"ok": "green", "warning": "yellow", "failure": "red", "not tried": "dim"}
_STATUS_WIDTH, _NAME_WIDTH = 10, 28


class Check(Record):
    """What was looked at, how it stands, what was found, and the fix (empty if nothing must be)."""

    name: str
    status: Status
    found: str
    fix: str = ""

    def lines(self) -> Iterator[Text]:
        """As the terminal shows it."""
        style = _STYLES[self.status]
        name = (f"{clean(self.name):<{_NAME_WIDTH}}", "bold")
        yield Text.assemble((f"{self.status:<{_STATUS_WIDTH}}", style), name, clean(self.found))
        if self.fix:
            yield Text(f"{'':<{_STATUS_WIDTH + _NAME_WIDTH}}fix: {clean(self.fix)}", style=style)


def ok(name: str, found: str) -> Check:
    return Check(name=name, status="ok", found=found)


def warning(name: str, found: str, fix: str) -> Check:
    return Check(name=name, status="warning", found=found, fix=fix)


def failure(name: str, found: str, fix: str) -> Check:
    return Check(name=name, status="failure", found=found, fix=fix)


def not_tried(name: str, why: str) -> Check:
    return Check(name=name, status="not tried", found=why)


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
        """The gravest status of the checks."""
        found = {check.status for check in (*self.machine, *self.deep)}
        return "failure" if "failure" in found else "warning" if "warning" in found else "ok"

    def write(self, folder: Path) -> Path:
        """Write both files into `folder`; the page's path is returned."""
        write_json(folder / "doctor.json", self)
        write_text(folder / "doctor.md", self.as_markdown())
        return folder / "doctor.md"

    def as_markdown(self) -> str:
        lines = [f"# sparkgpu doctor: {self.status}", ""]
        lines += [f"sparkgpu {self.sparkgpu}, {self.system}, {self.at}, {self.seconds:.0f} s"]
        lines += _section("Machine", self.machine, _SIGNS)
        lines += _section("Trained", self.deep, _PROOFS) if self.deep else []
        return "\n".join(lines) + "\n"


def _section(title: str, checks: Sequence[Check], signs: Mapping[Status, str]) -> list[str]:
    table = table_of(
        checks,
        {
            "what": lambda check: check.name,
            "": lambda check: signs[check.status],
            "found": lambda check: check.found,
            "the fix": lambda check: check.fix,
        },
    )
    return ["", f"## {title}", "", markdown(table)]
