"""Checks the built site: each link and picture leads to a place that exists, and nothing is fetched.

    python env/site/check.py build/site

Addresses of other servers may stand in links that a reader follows, but no page may load anything from one.
"""

from __future__ import annotations

import posixpath
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class _Page(HTMLParser):
    """The targets, the places and what is loaded in one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.places: set[str] = {""}
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.places |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.targets.add(found["href"])
        if (value := found.get(LOADED.get(tag, ""))) and not value.startswith("data:"):
            self.loaded.add(value)


def faults(site: Path) -> list[str]:
    """What is wrong, a line each."""
    pages = {
        file.relative_to(site).as_posix(): _Page(file.read_text(encoding="utf-8"))
        for file in site.rglob("*.html")
    }
    wrong = []
    for name, page in pages.items():
        if name == "404.html":  # shown at any address, so its links begin at the root
            continue
        for target in sorted(page.targets | page.loaded):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loaded:
                    wrong.append(f"{name} loads {target}")
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
            path = name if not parts.path else path
            if (site / path).is_dir():
                path += "/index.html"
            if not (site / path).is_file():
                wrong.append(f"{name} links to {target}, which is not there")
            elif path in pages and unquote(parts.fragment) not in pages[path].places:
                wrong.append(f"{name} links to {target}, but {path} has no such place")
    for file in site.rglob("*.css"):
        if "@import url(http" in (text := file.read_text(encoding="utf-8")) or "url(http" in text:
            wrong.append(f"{file.relative_to(site)} loads from another server")
    return wrong


if __name__ == "__main__":
    found = faults(Path(sys.argv[1]))
    print(
        "\n".join(found) or "the links of the site are right, and it loads nothing from elsewhere", flush=True
    )
    sys.exit(bool(found))
