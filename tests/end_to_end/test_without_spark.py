"""A small plain table needs no Spark: its lanes have H2O alone, as safe as inside a session."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from running import COMMAND, SMALL, finished

pytestmark = pytest.mark.spark


def test_lanes_without_spark_have_an_h2o_each_behind_a_login_on_loopback(wine: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "run", wine, "--target", "target", "--cpu-lanes", "2", *SMALL]
    run = finished(command, tmp_path / "out", tmp_path)
    assert {trial["status"] for trial in run.metrics["trials"]} == {"done"}
    assert "starting Spark" not in run.stdout
    bases = set(run.port_bases)
    assert len(bases) == 2
    assert any(bases <= ports for ports in run.seen.together)
    assert not any(base + 3 in ports for base in bases for ports in run.seen.together)  # Spark's driver
    assert {address for address, _ in run.seen.listeners} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert run.seen.answers == dict.fromkeys(run.port_bases, 401)
    passwords = {password for _, password in run.seen.logins.values()}
    assert len(passwords) == len(run.seen.logins) == 2
    for mode, password in run.seen.logins.values():
        assert mode == stat.S_IRUSR | stat.S_IWUSR
        assert len(password) >= 32
        assert not any(password in line for line in run.seen.commands)
        for file in (path for path in run.paths.root.rglob("*") if path.is_file()):
            assert password.encode() not in file.read_bytes(), file
    assert (run.paths.pipeline / "stages").is_dir()
    assert run.left_behind() == []
