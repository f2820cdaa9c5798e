"""The jar in front of H2O's is what its sources say."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from sparkgpu.core.errors import DeviceError
from sparkgpu.h2o import build_jar
from sparkgpu.h2o.startup import FRONT_JAR


def test_the_jar_was_built_from_the_sources_as_they_are() -> None:
    with zipfile.ZipFile(FRONT_JAR) as jar:
        said = jar.read(build_jar.DIGESTS).decode()
    assert said == build_jar.digests(), "a source changed: run `python -m sparkgpu.h2o.build_jar`"


@pytest.mark.process
def test_building_gives_the_committed_jar_byte_for_byte(javac: str, tmp_path: Path) -> None:
    build_jar.build(tmp_path / "front.jar")
    assert (tmp_path / "front.jar").read_bytes() == FRONT_JAR.read_bytes()


def test_without_a_jdk_the_build_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(DeviceError, match=r"javac 17 was asked for.*openjdk-17-jdk-headless"):
        build_jar.build()
