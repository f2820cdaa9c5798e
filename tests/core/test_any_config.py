"""Any value under any name of a configuration is kept as it was meant, or refused in one sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from sparkgpu.core.config import toml
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.errors import ConfigError


def names_of(properties: dict[str, Any], schema: dict[str, Any], before: str = "") -> list[str]:
    """The dotted keys of a JSON Schema."""
    found = []
    for name, own in properties.items():
        below = schema["$defs"].get(own.get("$ref", "").rpartition("/")[2], {})
        found += names_of(below.get("properties", {}), schema, f"{before}{name}.") or [before + name]
    return found


SCHEMA = json.loads(toml.run_schema())
KEYS = st.sampled_from(names_of(SCHEMA["properties"], SCHEMA)) | st.sampled_from(
    [
        "",
        ".",
        "trees",
        "trees.",
        "trees.ntree",
        "a.b.c",
        "data.roles.x",
        "neural.epochs.x",
        "größe",
        "x" * 300,
    ]
)
VALUES = st.sampled_from(
    ["", "-1", "0", "1", "1e400", "nan", "-inf", str(2**80), "true", "[]", "{}", "[1, [2]]", '["a", 3]',
     "{a = {b = 1}}", '"text"', "'", "[", "1 2", "..", "/", "~", "${HOME}", "\t", "1d", "5m", "auto", "00",
     "2024-01-01", "0x10", "x" * 500, "a\nb", '"\\u0000"', "tabm", "9" * 400]
)  # fmt: skip
TEXTS = ["[trees]\nntrees = 20\n", "seed = 3\n[data]\ntarget = 'y'\n[split]\nvalid = 0.2\n"]


def loaded(**given: Any) -> RunConfig | None:
    """The configuration, or None if it was refused in one sentence."""
    try:
        return toml.load(**given)
    except ConfigError as error:
        text = str(error)
        assert text.endswith((".", "?")) and not re.search(r"Traceback|pydantic|Error:|\[type=", text), text
        assert len(text) < 1500, text
        return None


@drawn(150)
@given(assignments=st.lists(st.tuples(KEYS, VALUES).map("=".join), min_size=1, max_size=2))
def test_assignments(assignments: list[str], tmp_path: Path) -> None:
    if config := loaded(assignments=assignments):
        file = tmp_path / "run.toml"
        file.write_text(toml.dump(config), encoding="utf-8")
        assert toml.load(file=file) == config


@drawn(60)
@given(text=st.sampled_from(TEXTS), at=st.integers(0, 60), added=st.binary(max_size=4))
def test_files(text: str, at: int, added: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(text.encode()[:at] + added + text.encode()[at:])
    loaded(file=file)
