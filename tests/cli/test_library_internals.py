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


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each attribute behind an underscore that no class or function of the file has."""
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    }
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in own:
            name = node.attr
            yield from [(node.lineno, name)] if re.match("_(?!_)", name) else []


def test_private_names_of_libraries_stand_in_their_marked_files() -> None:
    found = [
        f"{name}:{line} {attribute}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if (name := file.relative_to(PACKAGE).as_posix()) not in MARKED
        for line, attribute in private_names(ast.parse(file.read_text(encoding="utf-8")))
        if attribute not in PUBLIC | TORCH
    ]
    assert found == []


def test_no_module_of_another_package_is_replaced() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{node.lineno}"
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete)
        for target in (node.targets if not isinstance(node, ast.AugAssign) else [node.target])
        if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "sys.modules"
    ]
    assert found == []
