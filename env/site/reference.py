"""The pages of the reference, written from the code: commands, keys, metrics.json, errors, the Python API.

Each function gives the Markdown of one page. They need sparkgpu, but no part of mkdocs.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparkgpu.core import errors
from sparkgpu.core.config.toml import run_schema
from sparkgpu.core.rundir.metrics_json import metrics_schema

PACKAGE = Path(errors.__file__).parents[1]
DOORS = {"sparkgpu": "__init__.py", "sparkgpu.sklearn": "sklearn.py", "sparkgpu.spark": "spark.py"}
EXITS = (errors.ConfigError, errors.DeviceError, errors.DataError, errors.TrialError)


def commands() -> str:
    """Every command with its options, as their ``--help`` has them; written by typer."""
    import typer
    from typer.cli import get_docs_for_click

    from sparkgpu.cli import app

    command = typer.main.get_command(app)
    with command.make_context("sparkgpu", [], resilient_parsing=True) as context:
        text = get_docs_for_click(obj=command, ctx=context, name="sparkgpu", title="Commands")
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text)  # cut short; the table of contents has all
    return text.replace("\n* `", "\n- `")


def api() -> str:
    """Every public name of the three doors; mkdocstrings fills in signatures, types and docstrings."""
    page = ["# Python API", "Three doors, each with examples that a test runs."]
    for door, names in public_names().items():
        page += [f"## `{door}`", *(f"::: {door}.{name}" for name in names)]
    return "\n\n".join(page) + "\n"


def public_names() -> dict[str, list[str]]:
    """What each door lists in ``__all__``, read without importing Spark or scikit-learn."""
    found = {}
    for door, file in DOORS.items():
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        (names,) = (
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )
        found[door] = [name for name in ast.literal_eval(names) if not name.startswith("__")]
    return found


def metrics() -> str:
    """Each part of ``metrics.json`` with its keys and their types."""
    schema = json.loads(metrics_schema())
    page = [
        "# metrics.json",
        "Everything that a program wants to read of a run. [The JSON Schema](../schemas/metrics.schema.json) "
        "says the same, [rows and results](../run-directory.md#rows-and-results) how figures come about.",
        *_section("The file", schema),
    ]
    for name, part in sorted(schema["$defs"].items()):
        page += _section(name, part)
    return "\n\n".join(page) + "\n"


def _section(title: str, part: dict[str, Any]) -> Iterator[str]:
    yield f"## {title}"
    if part.get("description"):
        yield part["description"]
    if part.get("properties"):
        rows = "\n".join(
            f"| `{key}` | {_type(value, link=True)} |" for key, value in part["properties"].items()
        )
        yield f"| key | type |\n|---|---|\n{rows}"


def _type(value: dict[str, Any], *, link: bool = False) -> str:
    """The type of a value in words, with its bounds."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if link else _NAMED.get(name, name)
    if "enum" in value or "const" in value:
        return ", ".join(f"`{one}`" for one in value.get("enum") or [value["const"]])
    if several := value.get("anyOf") or value.get("oneOf") or value.get("allOf"):
        return " or ".join(dict.fromkeys(_type(one, link=link) for one in several))
    kind = value.get("type", "any value")
    if kind == "array":
        items = value.get("items") or value.get("prefixItems", [{}])[0]
        return f"list of {_type(items, link=link)}"
    if kind == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"table of {_type(value['additionalProperties'], link=link)}"
    words = {"object": "table", "string": "text", "boolean": "true or false", "null": "nothing"}
    bounds = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
    told = [f"{sign} {value[name]:.12g}" for name, sign in bounds if name in value]
    return " ".join([words.get(kind, kind), " and ".join(told)]).strip()


_NAMED = {"TreesModel": "a table of [trees]", "NetworkModel": "of [neural]", "ContextModel": "of [tabicl]"}


def key_types() -> dict[str, str]:
    """The type of each configuration key, by its dotted name."""
    schema = json.loads(run_schema())

    def keys(part: dict[str, Any], before: str) -> Iterator[tuple[str, str]]:
        for key, value in part["properties"].items():
            if "$ref" in value:
                yield from keys(schema["$defs"][value["$ref"].rpartition("/")[2]], f"{before}{key}.")
            else:
                yield before + key, _type(value)

    return dict(keys(schema, ""))


def with_types(page: str) -> str:
    """docs/configuration.md with the type of each key under its name. Raises `ValueError` if they differ."""
    types = key_types()
    left = dict(types)
    head, rest = page.split("| key | default | meaning |\n|---|---|---|\n")
    rows, blank, after = rest.partition("\n\n")
    lines = []
    for row in rows.splitlines():
        cell, other = row[2:].split(" | ", 1)
        section, shown = "", []
        for key in re.findall(r"`([\w.]+)`", cell):
            name = key if key in types else section + key
            if name not in types:
                raise ValueError(f"docs/configuration.md has `{key}`, which is no key of the configuration.")
            section = name.rpartition(".")[0] + "."
            left.pop(name, None)
            shown.append(f"`{name}`<br><small>{types[name]}</small>")
        lines.append(f"| {'<br>'.join(shown)} | {other}")
    if left:
        raise ValueError(f"docs/configuration.md lacks {', '.join(left)}.")
    return f"{head}| key | default | meaning |\n|---|---|---|\n" + "\n".join(lines) + blank + after


def errors_page() -> str:
    """The exit codes, the errors behind them, and the messages that the code holds, each with its mend."""
    page = [
        "# Errors and exit codes",
        "Every error is one or two sentences: what was asked, what was found, what to do. In Python all are "
        "`sparkgpu.core.errors.SparkgpuError`, a `ValueError`. Below, … stands for names and numbers.",
        "| exit code | error | meaning |\n|---|---|---|\n| 0 | | All trials are done. |\n"
        + "\n".join(f"| {one.exit_code} | `{one.__name__}` | {_line(one)} |" for one in EXITS)
        + f"\n| {errors.EXIT_INTERRUPTED} | | By Ctrl-C, SIGTERM or a notice of a batch system. |",
        "After 3 and 5, `sparkgpu doctor` says what does not work and how to mend it, and `sparkgpu run "
        "--resume --out FOLDER` goes on with a run whose folder is there. "
        "A check of `report.fail_on` that fails ends a run with exit code 4, after everything is written "
        "([what to do](../checks.md)).",
        "## Faults of the machine",
        "What Python, Java and native libraries say of disks, memory and limits becomes one of these:",
        "\n".join(
            f"- {sentence.format(words='…', where='')} (`{kind.__name__}`)"
            for kind, _, sentence in errors._FAULTS_OF_THE_MACHINE
        ),
    ]
    found = messages()
    for error in EXITS:
        told = "\n".join(f"- {_escaped(text)}" for text in sorted(found[error.__name__], key=str.casefold))
        page += [f"## {error.__name__}, exit code {error.exit_code}", _line(error), told]
    return "\n\n".join(page) + "\n"


def _line(error: type) -> str:
    return (error.__doc__ or "").strip().splitlines()[0]


def messages() -> dict[str, set[str]]:
    """The messages in the code by the name of their error."""
    found: dict[str, set[str]] = {error.__name__: set() for error in EXITS}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                text = _text(node.args[0])
                if node.func.id in found and len(text.strip("… ")) > 20:
                    found[node.func.id].add(text)
    return found


def _text(node: ast.expr) -> str:
    """A message with … for each value in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return re.sub("…{2,}", "…", "".join(_text(part) for part in node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return "…"


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_<>\[\]])", r"\\\1", " ".join(text.split()))


PAGES = {"commands": commands, "api": api, "metrics": metrics, "errors": errors_page}
"""The pages in ``reference/`` by their names."""
