"""Code, messages and docs use the field's words: docs/glossary.md has them, and those below are retired."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# In identifiers (joined by underscores or capitals), file names, messages, comments and docs alike.
RETIRED = {
    r"gets_on(?![a-z])": "made_progress",
    r"good[ _-]?bye": "shutdown",
    r"stand(s|ing)?[ _-]?still": "stall",
    r"at_hand(?![a-z])": "available, materialize",
    r"h[eo]ld[a-z_ ]*[ _](it )?against": "compare, verify",
    r"leav(e|es|ing)[ _]word": "record the reason",
    r"manieth": "n-th",
    r"how honest|honest prob|probabilities (are )?honest": "calibration, calibrated",
    r"go(es)? the way of": "is converted to",
    r"calls? nobody back": "has no callbacks",
    r"places? of levels?": "level codes",
    r"looking_after_myself|leave_stacks|answer_with_stacks": "watch_self, dump_stacks",
    r"moment(?![a-z])": "timestamp",
    r"truths|is_truth|[\"']truth[\"']": "boolean",
}
# Plain English, and the names that tables of earlier versions hold.
ALLOWED = re.compile(
    r"(at|for|in|needs?|when) (this|that|one|a) moment|a moment (later|to)"
    r"|\"(truth|moment)\"[,:] \"(boolean|timestamp)\""
)
SEARCHED = ("*.py", "*.md", "*.j2", "*.sh", "*.toml", "*.ipynb", "*.js", "*.java")
LEFT_OUT = ("benchmarks/results/", "tests/golden/", Path(__file__).relative_to(ROOT).as_posix())


PATH = re.compile(r"`((?:sparkgpu|tests|benchmarks|jobs|env|docs|notebooks)/[\w./-]+)`")


def files_of(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [name for name in listed.stdout.splitlines() if not name.startswith(LEFT_OUT)]


def test_no_retired_word_is_left() -> None:
    files = files_of(*SEARCHED)
    assert len(files) > 300
    found = [
        f"{name}: {match[0]!r}; say {instead}"
        for name in files
        if (ROOT / name).is_file()
        for text in [ALLOWED.sub("", f"{name}\n{(ROOT / name).read_text(encoding='utf-8')}".lower())]
        for pattern, instead in RETIRED.items()
        for match in re.finditer(pattern, text)
    ]
    assert not found, "\n".join(found)


def test_every_file_that_the_docs_name_is_there() -> None:
    named = {(name, path) for name in files_of("*.md") for path in PATH.findall((ROOT / name).read_text())}
    assert len(named) > 30
    assert not [f"{name}: {path}" for name, path in sorted(named) if not (ROOT / path).exists()]
