"""What mkdocs calls while it builds the site (``hooks`` in mkdocs.yml).

Pages of docs/ stay where they are and keep links that are right on GitHub. Here files of other folders join
them (records, notebooks as lessons, the reference from the code), and links are turned to their places.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import lessons  # noqa: E402
import reference  # noqa: E402

_markdown: dict[str, str] = {}
_sections: list[Any] = []
RECORDS = "benchmarks/results"
_PIPE = re.compile(r"^\|.*\\\|.*$", re.MULTILINE)
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")


PAGE_OF = {name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}
PAGE_OF["README.md"] = "overview.md"
PAGE_OF |= {f"{RECORDS}/{file.name}": f"results/{file.name}" for file in (ROOT / RECORDS).glob("*.md")}
PAGE_OF |= {
    f"notebooks/{file.name}": f"learn/{file.stem}.md" for file in (ROOT / "notebooks").glob("*.ipynb")
}
"""The places in the site of files outside docs/, by their places in the repository."""


def on_files(files: Files, config: Any) -> Files:
    for source, place in PAGE_OF.items():
        file = ROOT / source
        text = lessons.page(file) if file.suffix == ".ipynb" else file.read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=text))
    for name, make in reference.PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    if place in ("index.md", "compare.md"):  # they use the whole width
        page.meta["hide"] = ["navigation", "toc"]
    if place == "reference/errors.md":  # it has most words of all pages
        page.meta["search"] = {"boost": 0.2}
    if place == "configuration.md":
        try:
            markdown = reference.with_types(markdown)
        except ValueError as error:
            raise PluginError(str(error)) from None
    if place == "reference/api.md":
        return markdown
    if place.startswith("reference/"):  # its links are of the site already
        _markdown[place] = markdown
        return markdown
    home = next((source for source, site in PAGE_OF.items() if site == place), f"docs/{place}")

    def turned(found: re.Match[str]) -> str:
        text, target = found.groups()
        path, mark, anchor = target.partition("#")
        if not path or "://" in target or target.startswith("mailto:"):
            return found[0]
        source = posixpath.normpath(posixpath.join(posixpath.dirname(home), path))
        file = ROOT / source
        if not file.exists():
            raise PluginError(f"{home}: there is no {source}.")
        site = PAGE_OF.get(source) or (source.removeprefix("docs/") if source.startswith("docs/") else None)
        if site is None:  # code: the site does not hold it
            return text[1:-1]
        if text.endswith(".md]"):  # a file's name, which says most on GitHub
            text = f"[{file.read_text(encoding='utf-8').splitlines()[0].removeprefix('# ')}]"
        return f"{text}({posixpath.relpath(site, posixpath.dirname(place) or '.')}{mark}{anchor})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [_PIPE.sub(_pipes, _LINK.sub(turned, part)) for part in parts[::2]]
    _markdown[place] = "".join(parts)
    return _markdown[place]


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Search from a disk needs a shim, which the plugin ``offline`` would load from another server."""
    up = "../" * page.file.dest_uri.count("/")
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{up}site/iframe-worker.js")


def on_nav(nav: Any, **_: Any) -> None:
    _sections[:] = nav.items


def on_post_build(config: Any) -> None:
    """Write llms.txt, an index of all pages for language models, and the Markdown of each page beside it."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for section in _sections:
        pages = [section] if section.is_page else section.children
        lines += ["", f"## {section.title}", ""]
        for page in pages:
            text = _markdown.get(page.file.src_uri)
            if text is None:  # written from docstrings while the page is made
                lines.append(f"- [{page.title}]({page.file.dest_uri})")
                continue
            told = next((part for part in text.split("\n\n") if re.match(r"\w|`(?!``)|\*\*|\[", part)), "")
            sentence = re.split(r"(?<=\w[.?]) |:$", " ".join(_LINK.sub(_plain, told).split()))[0]
            lines.append(f"- [{page.title}]({page.file.src_uri}): {sentence}")
    for place, text in _markdown.items():  # also of pages that only others lead to
        Path(config.site_dir, place).write_text(text, encoding="utf-8")
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _pipes(row: re.Match[str]) -> str:
    """GitHub needs a backslash before a pipe in code in a table; Python-Markdown would show it."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0])


def _plain(found: re.Match[str]) -> str:
    return found[1][1:-1]
