"""One line of what the doctor found."""

from __future__ import annotations

from typing import Literal

from sparkgpu.rundir.files import Record

Status = Literal["ok", "warning", "failure", "not tried"]


class Check(Record):
    """What was looked at, how it stands, what was found, and the fix (empty if nothing must be)."""

    name: str
    status: Status
    found: str
    fix: str = ""


def ok(name: str, found: str) -> Check:
    return Check(name=name, status="ok", found=found)


def warning(name: str, found: str, fix: str) -> Check:
    return Check(name=name, status="warning", found=found, fix=fix)


def failure(name: str, found: str, fix: str) -> Check:
    return Check(name=name, status="failure", found=found, fix=fix)


def not_tried(name: str, why: str) -> Check:
    return Check(name=name, status="not tried", found=why)


def worst(checks: list[Check]) -> Status:
    """The gravest status of some checks."""
    found = {check.status for check in checks}
    for status in ("failure", "warning"):
        if status in found:
            return status
    return "ok"
