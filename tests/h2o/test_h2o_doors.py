"""H2O's published holes: shut for everybody without the run's login, and the import of SQL tables for all."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkgpu.core.host.reservations import reserved_ports, scratch_folder
from sparkgpu.h2o.startup import catalog_class_path, class_path

pytestmark = pytest.mark.spark

START = """
import sys; from pathlib import Path
from sparkgpu.h2o.context import start_h2o, stopping
from sparkgpu.h2o.session import spark_session
scratch, port = Path(sys.argv[1]), int(sys.argv[2])
with (
    spark_session(name="doors", threads=1, heap_bytes=2**29, scratch=scratch, port_base=port) as session,
    stopping(start_h2o(session, name="doors", scratch=scratch, port_base=port, threads=1)) as h2o,
):
    print("started, interpreter:", h2o.getConf().isH2OReplEnabled(), flush=True)
    sys.stdin.read()
"""
URL = {"connection_url": "jdbc:postgresql://127.0.0.1:1/x?socketFactory=java.lang.Object", "table": "x"}
LOGIN = {"username": "x", "password": "x"}
HIVE = {"database": URL["connection_url"], "table": "x"}
SHUT = "sparkgpu has shut H2O's import of SQL tables"
# What somebody without the login would call, by the holes that it would open.
DOORS = {
    "CVE-2025-6544, CVE-2025-5662, CVE-2025-6507, CVE-2026-3960, CVE-2024-8862, CVE-2024-10553": (
        "POST", "/99/ImportSQLTable", {**URL, **LOGIN},
    ),
    "the same through Hive": ("POST", "/3/ImportHiveTable", HIVE),
    "CVE-2023-6016": ("POST", "/3/ModelBuilders/generic", {"path": "POJO"}),
    "CVE-2023-6038": ("GET", "/3/ImportFiles", {"path": "/etc/passwd"}),
    "CVE-2024-10550": ("POST", "/3/ParseSetup", {"source_frames": '["x"]'}),
    "CVE-2023-6569, CVE-2024-5986": ("POST", "/3/Frames/x/export", {"path": "WRITTEN", "force": "true"}),
    "CVE-2024-6854": ("POST", "/99/Models.bin/x", {"dir": "WRITTEN", "force": "true"}),
    "CVE-2024-8616": ("GET", "/99/Models/x/json", {"dir": "WRITTEN", "force": "true"}),
    "CVE-2024-5550": ("GET", "/3/Typeahead/files", {"src": "/", "limit": "9"}),
    "CVE-2024-5979": ("POST", "/99/Rapids", {"ast": '(run_tool "MojoConvertTool" [])'}),
    "CVE-2023-6013": ("GET", "/flow/index.html", {}),
}  # fmt: skip


@dataclass(kw_only=True)
class H2O:
    """A real H2O of ours; `folder` is the test's own, and `said` what it said of itself at its start."""

    port: int
    login: tuple[str, str]
    folder: Path
    said: str

    def ask(self, method: str, path: str, values: dict[str, str], *, login: bool) -> tuple[int, str]:
        """The status and the text of its answer."""
        keys = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        url = f"http://127.0.0.1:{self.port}{path}"
        if login:
            keys.add_password(None, url, *self.login)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPBasicAuthHandler(keys)
        )
        data = urllib.parse.urlencode(values)
        asked = (
            urllib.request.Request(f"{url}?{data}")
            if method == "GET"
            else urllib.request.Request(url, data.encode())
        )
        try:
            with opener.open(asked, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()


@pytest.fixture(scope="module")
def h2o(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[H2O]:
    folder = tmp_path_factory.mktemp("doors")
    with reserved_ports(1) as (port,), scratch_folder() as scratch, subprocess.Popen(
        [sys.executable, "-c", START, str(scratch), str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout
        said = next(line for line in process.stdout if line.startswith("started"))
        user, password = (scratch / "h2o-login").read_text().strip().split(": ")
        yield H2O(port=port, login=(user, password), folder=folder, said=said)
        process.communicate(timeout=60)


@pytest.mark.parametrize("hole", DOORS)
def test_without_the_login_a_hole_is_shut(h2o: H2O, hole: str) -> None:
    method, path, values = DOORS[hole]
    written = h2o.folder / "written"
    values = {key: str(written) if value == "WRITTEN" else value for key, value in values.items()}
    assert h2o.ask(method, path, values, login=False)[0] == 401
    assert h2o.ask(method, path, values, login=True)[0] != 401  # a door that is there
    assert not written.exists()


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/99/ImportSQLTable", {**URL, **LOGIN}),
        ("/99/ImportSQLTable", {**URL, **LOGIN, "fetch_mode": "SINGLE"}),
        ("/99/ImportSQLTable", {**URL, **LOGIN, "connection_url": "jdbc:derby:memory:x;create=true"}),
        ("/3/ImportHiveTable", HIVE),
    ],
)
def test_with_the_login_too_no_sql_table_is_imported(h2o: H2O, path: str, values: dict[str, str]) -> None:
    status, said = h2o.ask("POST", path, values, login=True)
    assert status >= 400 and SHUT in said


def test_with_the_login_too_no_code_comes_by_a_pojo_and_no_file_of_the_system_is_read(h2o: H2O) -> None:
    (program := h2o.folder / "Planted.java").write_text("class Planted {}")
    _, said = h2o.ask("POST", "/3/ModelBuilders/generic", {"path": str(program)}, login=True)
    job = json.loads(said)["job"]["key"]["URL"]
    while '"status":"RUNNING"' in (said := h2o.ask("GET", job, {}, login=True)[1]):
        pass
    assert "POJO import is disabled" in said
    for file in ("/etc/passwd", "/etc/ssl/openssl.cnf", "/proc/self/environ"):
        status, said = h2o.ask("GET", "/3/ImportFiles", {"path": file}, login=True)
        assert status >= 400 and f"File {file} access denied" in said


def test_with_the_login_too_no_scala_is_interpreted(h2o: H2O) -> None:
    assert h2o.said == "started, interpreter: False\n"
    assert h2o.ask("POST", "/3/scalaint", {}, login=True)[0] == 404  # Sparkling Water's proxy would answer


def test_no_jdbc_driver_is_on_the_class_path_but_the_catalogs_own_where_asked() -> None:
    def with_driver(jars: list[str]) -> list[str]:
        names = ((jar, zipfile.ZipFile(jar).namelist()) for jar in jars if jar.endswith(".jar"))
        return [Path(jar).name for jar, files in names if "META-INF/services/java.sql.Driver" in files]

    assert with_driver(class_path()) == []
    assert any(name.startswith("derby-") for name in with_driver(catalog_class_path()))
