"""A picture of the report as a notebook shows it: a PNG on white, which every host and theme can show."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkgpu.errors import ConfigError
from sparkgpu.report.figure import Picture


@dataclass(frozen=True, repr=False)
class ShownPicture:
    """`png` are the bytes of the picture, `caption` tells in words what it shows."""

    png: bytes
    caption: str

    def save(self, file: str | Path) -> Path:
        """Write the picture to `file`, whose name ends with .png."""
        path = Path(file)
        if path.suffix.lower() != ".png":
            raise ConfigError(f"{file}: the picture is a PNG. Give a name that ends with .png.")
        path.write_bytes(self.png)
        return path

    def __repr__(self) -> str:
        return f"<picture: {self.caption}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/png": base64.b64encode(self.png).decode("ascii"), "text/plain": repr(self)}


def shown(picture: Picture | None, what: str) -> ShownPicture:
    """What a notebook shows of `picture`. Raises `ConfigError` with `what` is missing if there is none."""
    if picture is None:
        raise ConfigError(f"there is nothing to draw: {what}.")
    return ShownPicture(picture.png, picture.caption)
