"""What libraries keep behind an underscore is used in one marked file for each library."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import sparkgpu

PACKAGE = Path(sparkgpu.__file__).parent
MARKED = {"prepare/pyspark_internals.py", "h2o/client_internals.py", "neural/memory_plan.py"}
# Documented by Python, and by pyspark for everybody's own Params.
PUBLIC = {"_exit", "_dummy"}
# torch's optimizers are written in these, and its documentation of "foreach" names them.
TORCH = {"_foreach_mul", "_foreach_sub_"}


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Each file of the package by its name."""
    for file in sorted(PACKAGE.rglob("*.py")):
        yield file.relative_to(PACKAGE).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each attribute behind an underscore that no class or function of the file has."""
    own, used = set(), []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                own.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                own.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                own.add(name)
            case ast.Attribute(attr=name) if re.match("_(?!_)", name):
                used.append((node.lineno, name))
    yield from (place for place in used if place[1] not in own)


def test_private_names_of_libraries_stand_in_their_marked_files() -> None:
    found = [
        f"{name}:{line} {attribute}"
        for name, tree in trees()
        if name not in MARKED
        for line, attribute in private_names(tree)
        if attribute not in PUBLIC | TORCH
    ]
    assert found == []


def test_no_module_of_another_package_is_replaced() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete)
        for target in (node.targets if not isinstance(node, ast.AugAssign) else [node.target])
        if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "sys.modules"
    ]
    assert found == []
