"""What the doctor says of GPUs that are not here: ``python tests/ops/doctor_answers.py [--all]``.

NVML is simulated, and torch is the package of PyPI, of which only the names of files are there. Prints the
short table of docs/gpu.md, or with ``--all`` one row for each machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
DRIVERS = {"535.54.03": 12020, "550.54.15": 12040, "570.133.20": 12080, "580.65.06": 13000}
CARDS = {
    "P100": 60, "V100": 70, "T4": 75, "A100": 80, "L4": 89, "H100": 90, "B200": 100,
}  # fmt: skip
ROWS = {
    "P100, V100 (6.0, 7.0)": "V100", "T4, RTX 20 (7.5)": "T4", "A100 (8.0)": "A100",
    "A10, L4, L40, RTX 30 and 40 (8.6, 8.9)": "L4", "H100, H200 (9.0)": "H100",
    "B200 (10.0), RTX 50 (12.0)": "B200",
}  # fmt: skip
CUT = ("A100", "H100", "B200")
"""Cards that MIG can cut."""

INSTALLED = {
    "torch-2.13.0": ["torch/__init__.py"], "nvidia_nccl_cu13-2.29.7": ["nvidia/nccl/lib/libnccl.so.2"],
    "nvidia_cudnn_cu13-9.20.0.48": ["nvidia/cudnn/lib/libcudnn.so.9"],
    "xgboost-3.2.0": ["xgboost/__init__.py"],
}  # fmt: skip


def machine(driver: str, card: str, kind: str) -> str:
    """The lines of a machine for the simulated driver; `kind` is ``one card``, ``two cards`` or ``MIG``."""
    gib = 2**30
    lines = [f"driver|{driver}|{DRIVERS[driver]}|0"]
    for number in range(2 if kind == "two cards" else 1):
        lines.append(f"gpu|GPU-{number}|{card}|{40 * gib}|0|{int(kind == 'MIG')}|{CARDS[card]}|0|0")
    if kind == "MIG":
        lines += [f"slice|MIG-{place}|{card} MIG 3g.20gb|{20 * gib}|{place}|0" for place in (1, 2)]
    return "\n".join(lines) + "\n"


def answers(driver: str, card: str, kind: str) -> dict[str, tuple[str, str, str]]:
    """The doctor's checks of GPUs on such a machine: status, what it found, and the fix, by name."""
    from sparkgpu.core.host.gpus import find_gpus
    from sparkgpu.ops.doctor.gpu_checks import gpu_checks

    Path(os.environ["SIMULATED_NVML"]).write_text(machine(driver, card, kind))
    return {check.name: (check.status, check.found, check.fix) for check in gpu_checks(find_gpus())}


def short() -> Iterator[str]:
    """A row for each kind of card: what mends torch with each driver."""
    yield "| cards | " + " | ".join(driver.partition(".")[0] for driver in DRIVERS) + " | H2O XGBoost | MIG |"
    yield "|---|" + "---|" * (len(DRIVERS) + 2)
    for title, card in ROWS.items():
        cells = []
        for driver in DRIVERS:
            status, _, fix = answers(driver, card, "one card")["torch"]
            two = answers(driver, card, "two cards")["torch"]
            assert two[0] == status and two[2] == fix
            cells.append("ok" if status == "ok" else _word(fix))
        h2o = answers(driver, card, "one card")["H2O XGBoost on GPUs"]
        cut = card in CUT and answers(driver, card, "MIG")["one network over several"][1]
        cells.append("machine code" if h2o[0] == "ok" else "translated by the driver")
        cells.append("each slice a lane" if cut else "no")
        yield f"| {title} | " + " | ".join(cells) + " |"


def _word(fix: str) -> str:
    return (
        fix.rpartition("/")[2] if "pip install" in fix else fix.removeprefix("install ").partition(" or")[0]
    )


def whole() -> Iterator[str]:
    """What is not ok with each driver and card; machines with equal answers share a row."""
    yield "| driver | card | machine | not ok | the doctor says | the command |"
    yield "|---|---|---|---|---|---|"
    for driver, card in product(DRIVERS, ROWS.values()):
        kinds: dict[tuple[str, ...], list[str]] = {}
        for kind in ("one card", "two cards", *(["MIG"] if card in CUT else [])):
            wrong = [(name, *one[1:]) for name, one in answers(driver, card, kind).items() if one[0] != "ok"]
            for name, said, fix in wrong or [("–", "all is ok", "")]:
                kinds.setdefault((name, said.replace(" MIG 3g.20gb", ""), fix), []).append(kind)
        for (name, said, fix), shared in kinds.items():
            code = f"``{fix}``" if "pip" in fix else fix
            yield f"| {driver} | {card} | {', '.join(shared)} | {name} | {said} | {code} |"


def main() -> None:
    if "SIMULATED_NVML" not in os.environ:
        sys.path.insert(0, str(TESTS))
        from simulated_driver import built

        with tempfile.TemporaryDirectory() as folder:
            library = built(shutil.which("cc") or "gcc", Path(folder))
            given = {"LD_LIBRARY_PATH": str(library), "SIMULATED_NVML": str(library / "machine")}
            subprocess.run([sys.executable, *sys.argv], env={**os.environ, **given}, check=True)
        return
    import pynvml  # noqa: F401 # these before the installed packages are hidden

    import sparkgpu.ops.doctor.gpu_checks  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        for name, files in INSTALLED.items():
            info = Path(folder) / f"{name}.dist-info"
            info.mkdir()
            title, _, version = name.partition("-")
            (info / "METADATA").write_text(f"Name: {title}\nVersion: {version}\n")
            (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
            for file in map(Path(folder).joinpath, files):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
        (Path(folder) / "pysparkling.py").touch()
        (Path(folder) / "torch" / "version.py").write_text("cuda: Optional[str] = '13.0'\n")
        sys.path[:] = [folder, *(path for path in sys.path if "site-packages" not in path)]
        print(*(whole() if "--all" in sys.argv else short()), sep="\n")


if __name__ == "__main__":
    main()
