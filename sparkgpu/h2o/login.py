"""The login of one H2O: a random password, made for one run, in a file that only its owner reads."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

USER = "sparkgpu"
# H2O's default list without its last entry, paths with a hidden folder: a run may be in one.
DENIED_FILES = "{/bin/*,/etc/*,/var/*,/usr/*,/proc/*}"
"""Files that H2O must not read for those who have the login."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """Name and password, and the file with both that H2O reads."""

    file: Path
    password: str = field(repr=False)


def make_login(folder: Path) -> Login:
    """A new login; its file in `folder` is readable by its owner only."""
    password = secrets.token_urlsafe(32)
    file = folder / "h2o-login"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(f"{USER}: {password}\n")
    return Login(file=file, password=password)
