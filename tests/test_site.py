"""The documentation: links are right where files lie, each page has its place, the reference is whole.

`env/site/build.sh` builds the site and checks its own links; here is what needs no mkdocs.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest
import typer
from running import REPOSITORY

import sparkgpu.sklearn
from sparkgpu.cli import app
from sparkgpu.core.config.toml import run_schema
from sparkgpu.core.config.values import CheckName
from sparkgpu.core.rundir.metrics_json import metrics_schema
from sparkgpu.core.rundir.paths import RunPaths, TrialPaths

DOCS = REPOSITORY / "docs"
PAGES = sorted(
    file
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/results/*.md", "notebooks/*.ipynb")
    for file in REPOSITORY.glob(pattern)
)


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    name = "reference_of_the_site"
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "env" / "site" / "reference.py")
    assert spec and spec.loader
    sys.modules[name] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def prose(file: Path) -> str:
    """The text of a page without its code."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(file: Path) -> set[str]:
    """The places in a page, by the rule of code hosts for headings."""
    text = prose(file)
    headings = [re.sub(r"[`*]|\]\(.*?\)", "", line).lower() for line in re.findall(r"^#+ (.*)$", text, re.M)]
    slugs = {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'id="(.*?)"', text))


def broken(file: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^()\s]+)\)", prose(file)):
        path, _, anchor = target.partition("#")
        found = file if not path else (file.parent / path).resolve()
        if "://" in target or target.startswith("mailto:"):
            continue
        if not found.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(found):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.relative_to(REPOSITORY).as_posix())
def test_each_link_of_a_page_leads_to_a_file_and_a_heading_that_exist(file: Path) -> None:
    assert list(broken(file)) == []


def test_every_page_has_its_place_in_the_site() -> None:
    places = re.findall(r"- (?:[\w -]+: )?([\w/.-]+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.M)
    pages = {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")}
    pages -= {page for page in pages if re.match(r"decisions/\d", page)}  # its README leads to them
    lessons = {f"learn/{file.stem}.md" for file in (REPOSITORY / "notebooks").glob("*.ipynb")}
    assert pages | lessons <= {*places}, "add them to nav in mkdocs.yml"
    assert len(places) == len({*places})


def test_the_reference_has_every_command_with_every_option(reference: ModuleType) -> None:
    page, commands = reference.commands(), 0

    def check(name: str, command: typer.core.TyperCommand) -> None:
        nonlocal commands
        commands += 1
        (section,) = re.findall(rf"^#+ `{name}`$(.*?)(?=^#|\Z)", page, re.M | re.S)
        shown = [option for one in command.params if not getattr(one, "hidden", False) for option in one.opts]
        assert [option for option in shown if option.startswith("--") and option not in section] == []
        for sub, below in getattr(command, "commands", {}).items():
            check(f"{name} {sub}", below)

    for sub, command in typer.main.get_command(app).commands.items():
        check(f"sparkgpu {sub}", command)
    assert commands > len(app.registered_commands)


def test_the_table_of_keys_is_complete_and_gets_the_types_of_the_code(reference: ModuleType) -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    shown = reference.with_types(page)
    keys = reference.key_types()
    assert {"seed", "data.target", "trees.ntrees", "neural.strategy"} < {*keys}
    assert {name.partition(".")[0] for name in keys} == {*json.loads(run_schema())["properties"]}
    assert [name for name in keys if f"`{name}`<br>" not in shown] == []
    assert "`split.folds`<br><small>integer ≥ 2" in shown
    with pytest.raises(ValueError, match=r"docs/configuration\.md lacks seed\."):
        reference.with_types(page.replace("| `seed` | 7 |", "| `repeats` | 7 |"))
    with pytest.raises(ValueError, match=r"has `sead`, which is no key"):
        reference.with_types(page.replace("| `seed` | 7 |", "| `sead` | 7 |"))


def test_the_reference_has_every_public_name_and_every_part_of_the_metrics(reference: ModuleType) -> None:
    api = reference.api()
    for door in (sparkgpu, sparkgpu.sklearn):
        names = [name for name in door.__all__ if name != "__version__"]
        assert names and [name for name in names if f"::: {door.__name__}.{name}\n" not in api] == []
    assert "::: sparkgpu.spark.SparkgpuEstimator\n" in api
    schema, page = json.loads(metrics_schema()), reference.metrics()
    for part in (schema, *schema["$defs"].values()):
        assert [key for key in part.get("properties", {}) if f"| `{key}` |" not in page] == []


def test_the_page_on_the_run_directory_has_every_file_that_the_code_names(tmp_path: Path) -> None:
    page = (DOCS / "run-directory.md").read_text(encoding="utf-8")
    for paths in (RunPaths(root=tmp_path), TrialPaths(root=tmp_path)):
        names = [getattr(paths, name) for name, what in vars(type(paths)).items() if hasattr(what, "_name")]
        assert len(names) > 10 and [path.name for path in names if path.name not in page] == []


def test_the_reference_has_the_errors_with_their_codes_and_messages(reference: ModuleType) -> None:
    page = reference.errors_page()
    for line in (
        "| 2 | `ConfigError` |",
        "| 3 | `DeviceError` |",
        "| 4 | `DataError` |",
        "| 5 | `TrialError` |",
    ):
        assert line in page
    assert "Raise that with `ulimit -n 4096`." in page
    assert "the new folder of the run." in page  # of sparkgpu/spark.py


def test_every_named_check_says_how_to_reduce_its_risk() -> None:
    rows = re.findall(
        r'^\| <a id="(.*?)"></a>`(.*?)` \| .+ \| (.+) \|$', (DOCS / "checks.md").read_text(), re.M
    )
    assert [name for _, name, _ in rows] == [*get_args(CheckName)]
    assert all(place == name.replace("_", "-") and mend for place, name, mend in rows)
