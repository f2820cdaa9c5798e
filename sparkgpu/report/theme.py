"""The colours of the page as CSS variables, light and dark; its pictures use the same variables.

The reader's system chooses between light and dark, unless the switch on the page does; print is light.
Text colours have a contrast of at least 4.5 to 1 with their ground.
"""

from __future__ import annotations

from sparkgpu.report.palette import COLOURS, LINE, PAGE, SOFT, TEXT, Ink

PANEL = Ink(variable="--panel", light="#f6f8fa", dark="#20242a")
WARNING_SHADE = Ink(variable="--warning-shade", light="#fff4ea", dark="#2c2119")
TEXTS = (
    TEXT,
    SOFT,
    Ink(variable="--link", light="#0a5ba0", dark="#7cc4f2"),
    Ink(variable="--best", light="#005a8f", dark="#7cc4f2"),
    Ink(variable="--warning", light="#8a3c00", dark="#ffb27a"),
    Ink(variable="--good", light="#1a6b3c", dark="#7fd6a4"),
)
_INKS = (PAGE, PANEL, WARNING_SHADE, LINE, *TEXTS, *COLOURS)


def style() -> str:
    """The rules that set the variables for each theme; pixels in pictures are brighter on a dark page."""
    light = " ".join(f"{ink.variable}: {ink.light};" for ink in _INKS) + " --pixels: none;"
    dark = " ".join(f"{ink.variable}: {ink.dark};" for ink in _INKS) + " --pixels: brightness(1.6);"
    return "\n".join(
        (
            f":root {{ color-scheme: light dark; {light} }}",
            f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}",
            f":root[data-theme=light] {{ color-scheme: light; {light} }}",
            f":root[data-theme=dark] {{ color-scheme: dark; {dark} }}",
            f"@media print {{ :root, :root[data-theme] {{ color-scheme: light; {light} }} }}",
        )
    )
