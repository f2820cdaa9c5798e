"""What a run takes for its devices on machines that this one is not, as the driver would describe them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.core.host.telemetry import read_telemetry

pytestmark = pytest.mark.process  # each test asks the command several times

GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"


def gpu(
    number: int, title: str = H100, *, mode: int = 0, mig: int = 0, result: int = 0, memory: int = 0,
    used: float = 0,
) -> str:  # fmt: skip
    uuid = f"GPU-{number}{number}{number}{number}-00"
    return f"gpu|{uuid}|{title}|{80 * GIB}|{mode}|{mig}|90|{result}|{memory}|{int(used * GIB)}"


def mig_slice(name: str, instance: int) -> str:
    return f"slice|MIG-{name}|{H100} MIG 3g.40gb|{40 * GIB}|{instance}|0"


# Imports are most of a dry run, so each is a copy of a process that has made them.
SERVER = """
import json, os, sys
import pandas, sparkgpu.prepare.to_parquet, sparkgpu.present.terminal.display, sparkgpu.runs.run
from sparkgpu.cli import main
for line in sys.stdin:
    environment, arguments, *outputs = json.loads(line)
    if not (child := os.fork()):
        os.environ.clear()
        os.environ.update(environment)
        for number, file in enumerate(outputs, start=1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        main(arguments)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def server(library: str) -> subprocess.Popen[str]:
    """It finds the simulated driver in `library`, and ends with this process, which closes its input."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "LD_LIBRARY_PATH": library},
    )  # fmt: skip


def dry_run(environment: dict[str, str], *options: str, code: int = 0) -> str:
    """What ``sparkgpu run --dry-run`` says."""
    asked = server(environment["LD_LIBRARY_PATH"])
    assert asked.stdin and asked.stdout
    machine = Path(environment["SIMULATED_NVML"])
    outputs = [machine.with_name(name) for name in ("stdout", "stderr")]
    print(
        json.dumps([environment, ["run", "--dry-run", *options], *map(str, outputs)]),
        file=asked.stdin,
        flush=True,
    )
    status = int(asked.stdout.readline())
    stdout, stderr = (output.read_text() for output in outputs)
    assert status == code, stdout + stderr
    assert code == 0 or stderr.count("\n") == 1
    return stdout + stderr


def lanes(text: str) -> list[str]:
    """Device and name of each lane."""
    found = (line.split(None, 2)[2] for line in text.splitlines() if line.startswith("lane "))
    return [line.partition(",")[0] for line in found]


def test_one_gpu_and_eight_alike_are_all_used(simulate) -> None:
    assert lanes(dry_run(simulate(gpu(0)))) == [f"cuda:0 {H100}"]
    # Each lane wants a part of the memory, and this machine may have little.
    text = dry_run(simulate(*map(gpu, range(8))), "--gpus", "7,2")
    assert lanes(text) == [f"cuda:7 {H100}", f"cuda:2 {H100}"]


def test_without_a_driver_there_is_no_gpu_and_with_a_silent_one_the_run_stops(
    simulate, tmp_path: Path
) -> None:
    text = dry_run(simulate(init=9))
    assert lanes(text) == ["cpu"] and "the CPU, since no GPU is visible here" in text
    program = (
        "import sys, pathlib, sparkgpu.core.host.gpus as gpus\n"
        "gpus._SIGNS = (pathlib.Path(sys.argv.pop(1)),)\n"
        "from sparkgpu.cli import main\n"
        "sys.exit(main())"
    )
    sign = tmp_path / "nvidia0"
    sign.touch()
    ended = subprocess.run(
        [sys.executable, "-c", program, str(sign), "run", "--dry-run"],
        env=simulate(init=9), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 3
    assert ended.stderr == (
        f"sparkgpu: NVIDIA's driver is here ({sign}), but does not answer: Driver Not Loaded. To train on "
        "the CPU, ask for it with --cpu-lanes 1.\n"
    )


def test_a_card_that_does_not_answer_hides_no_other(simulate) -> None:
    environment = simulate(gpu(0, result=15), gpu(1), gpu(2, result=4))
    assert lanes(dry_run(environment)) == [f"cuda:0 {H100}"]
    text = dry_run(environment, "--gpus", "1", code=3)
    assert "visible devices are 0. Choose from 0." in text


def test_if_no_card_can_be_used_the_run_stops_with_the_reason_of_each(simulate) -> None:
    environment = simulate(gpu(0, result=15), gpu(1, result=4), gpu(2, mode=2))
    text = dry_run(environment, code=3)
    assert text == (
        "sparkgpu: no GPU of this machine can be used (GPU 0: the driver says: GPU is lost; GPU 1: this "
        "process may not use it; GPU 2: its compute mode is PROHIBITED; an administrator can change it with "
        "`nvidia-smi -c 0`). To train on the CPU, ask for it with --cpu-lanes 1.\n"
    )
    assert lanes(dry_run(environment, "--cpu-lanes", "1")) == ["cpu"]


def test_a_card_whose_memory_is_denied_is_a_card(simulate) -> None:
    assert lanes(dry_run(simulate(gpu(0, memory=4)))) == [f"cuda:0 {H100}"]


def test_the_plan_counts_what_others_use_of_a_card(simulate) -> None:
    wide = ("--set", "neural.architecture=mlp", "--set", "neural.hidden=[45000,45000]")  # 30 GiB with moments
    for used, strategy, reason in ((1, "single", None), (30.5, "fsdp", "30.5 GiB of 80.0 GiB of cuda:1")):
        plan = json.loads(
            dry_run(simulate(gpu(0), gpu(1, used=used)), *wide, "--json").partition("\nspark")[0]
        )
        assert plan["reasons"]["strategy"].startswith(f"{strategy}: ")
        assert plan["reasons"].get("GPU memory") == (reason and f"others use {reason}")
        shown = [lane["used_bytes"] for lane in plan["lanes"]]
        assert shown == ([0, GIB] if strategy == "single" else 2 * [int(30.5 * GIB)])


def test_slices_are_devices_and_the_card_that_they_cut_is_none(simulate) -> None:
    cut = (gpu(0, mig=1), mig_slice("aaaa", 1), mig_slice("bbbb", 2), gpu(1, mig=1))
    title = f"{H100} MIG 3g.40gb"
    assert lanes(dry_run(simulate(*cut))) == [f"cuda:0 {title}", f"cuda:1 {title}"]
    assert lanes(dry_run(simulate(*cut, CUDA_VISIBLE_DEVICES="MIG-bbbb"))) == [f"cuda:0 {title}"]
    text = dry_run(simulate(*cut, CUDA_VISIBLE_DEVICES="GPU-0000"), code=3)
    assert text.startswith(
        "sparkgpu: CUDA_VISIBLE_DEVICES=GPU-0000 names none of the GPUs here (MIG-aaaa, MIG-bbbb, GPU-1111-00"
    )
    text = dry_run(simulate(gpu(0, mig=1)), code=3)
    assert "GPU 0: MIG is on and no slice is made" in text


def test_a_network_is_never_spread_over_slices(simulate) -> None:
    cut = simulate(gpu(0, mig=1), mig_slice("aaaa", 1), mig_slice("bbbb", 2), gpu(1))
    for strategy in ("ddp", "dp"):
        text = dry_run(cut, "--gpus", "0,1", "--strategy", strategy, code=3)
        assert text == (
            f'sparkgpu: neural.strategy = "{strategy}": CUDA shows a process one slice of a GPU that MIG has '
            'cut, and these are 2 devices with slices. Choose "single", which trains a network on each, or '
            "name one device with --gpus.\n"
        )
    assert "these are 2 devices" in dry_run(cut, "--gpus", "1,2", "--strategy", "tp", code=3)
    large = ("--set", "neural.architecture=mlp", "--set", "neural.hidden=[60000,60000]")
    for more in (("--repeats", "1"), large):  # with whole cards: ddp, fsdp
        text = dry_run(cut, "--gpus", "0,1", *more)
        assert "single: each network trains on one device, one repeat for each lane: CUDA shows" in text
    assert "fsdp" in dry_run(simulate(gpu(0), gpu(1)), "--gpus", "0,1", *large)


def test_a_number_that_cuda_and_nvidia_smi_read_differently_is_refused(simulate) -> None:
    mixed = (gpu(0, "NVIDIA T4"), gpu(1), gpu(2, "NVIDIA T4"))
    text = dry_run(simulate(*mixed, CUDA_VISIBLE_DEVICES="1"), code=3)
    assert "Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name them by UUID (`nvidia-smi -L`)." in text
    by_place = simulate(*mixed, CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert lanes(dry_run(by_place)) == [f"cuda:0 {H100}"]
    assert lanes(dry_run(simulate(*mixed, CUDA_VISIBLE_DEVICES="GPU-1111"))) == [f"cuda:0 {H100}"]
    assert lanes(dry_run(simulate(*mixed), "--gpus", "2")) == ["cuda:2 NVIDIA T4"]
    alike = (gpu(0, result=4), gpu(1), gpu(2))  # Slurm numbers the cards that a job may use
    assert lanes(dry_run(simulate(*alike, CUDA_VISIBLE_DEVICES="1"))) == [f"cuda:0 {H100}"]


def test_a_card_for_one_process_at_a_time_gets_trees_and_network_in_turn(simulate) -> None:
    text = dry_run(simulate(gpu(0, mode=3)))
    assert "the network waits for the trees: the GPU takes one process at a time" in text
    assert "waits" not in dry_run(simulate(gpu(0, mode=3)), "--set", "models=['trees']")


def test_the_resolved_configuration_of_trees_without_a_gpu_build_is_accepted_again(
    simulate, tmp_path: Path
) -> None:
    environment = simulate(gpu(0))
    options = ("--gpus", "0", "--set", "trees.engine=lightgbm")
    assert "on the CPU: lightgbm has no GPU build here" in dry_run(environment, *options)
    # As ``run.toml`` keeps it.
    assert "lane 0" in dry_run(environment, *options, "--set", "trees.tree_method=hist")


def test_trees_on_a_gpu_begin_with_a_probe_unless_their_engine_is_named(simulate) -> None:
    text = dry_run(simulate(gpu(0)))
    assert "h2o-xgboost, after a probe of its library on the GPU" in text
    assert "probe" not in dry_run(simulate(gpu(0)), "--set", "trees.engine=h2o-xgboost")
    assert "probe" not in dry_run(simulate(gpu(0)), "--cpu-lanes", "1")
    assert "probe" not in dry_run(simulate(gpu(0)), "--set", "trees.tree_method=hist")


STAND_IN = """#!/bin/sh
env > "{folder}/$$.env"
echo "$@" > "{folder}/$$.arguments"
exit 1
"""


def test_a_worker_sees_the_card_of_its_lane_by_uuid_and_no_other(simulate, tmp_path: Path) -> None:
    """The processes that a run really starts; in Python's place, a program writes down what it got."""
    stand_in = tmp_path / "stand-in"
    stand_in.write_text(STAND_IN.format(folder=tmp_path))
    stand_in.chmod(0o755)
    program = (
        f"import sys\nsys.executable = {str(stand_in)!r}\nfrom sparkgpu.cli import main\nsys.exit(main())"
    )
    environment = simulate(*map(gpu, range(3)), CUDA_DEVICE_ORDER="FASTEST_FIRST")
    ended = subprocess.run(
        [sys.executable, "-c", program, "run", "--gpus", "2,0", "--out", str(tmp_path / "out")],
        env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 5, ended.stdout + ended.stderr
    found = set()
    for file in tmp_path.glob("*.env"):
        given = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
        words = file.with_suffix(".arguments").read_text().split()
        assert given["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        found.add(
            (
                words[words.index("--lane") + 1],
                words[words.index("--branch") + 1],
                given["CUDA_VISIBLE_DEVICES"],
            )
        )
    assert found == {
        (lane, branch, uuid)
        for lane, uuid in (("0", "GPU-2222-00"), ("1", "GPU-0000-00"))
        for branch in ("trees", "neural")
    }
    gpus = json.loads((tmp_path / "out" / "env.json").read_text())["host"]["gpus"]
    assert [one["uuid"] for one in gpus] == ["GPU-0000-00", "GPU-1111-00", "GPU-2222-00"]


@pytest.mark.spark
def test_trees_that_the_gpu_does_not_train_are_refused_and_never_trained_on_the_cpu(
    simulate, tmp_path: Path
) -> None:
    """H2O itself, on a machine whose driver tells of a GPU that is not there."""
    rows = range(400)
    table = pa.table({"x": [row % 37 for row in rows], "y": [str(row % 37 > 17) for row in rows]})
    pq.write_table(table, tmp_path / "table.parquet")
    out = tmp_path / "out"
    ended = subprocess.run(
        [sys.executable, "-m", "sparkgpu", "run", str(tmp_path / "table.parquet"), "--target", "y", "--gpus",
         "0", "--set", 'models=["trees"]', "--out", str(out), "--quiet"],
        env=simulate(gpu(0)), capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ended.returncode == 5, ended.stdout + ended.stderr
    (trial,) = json.loads((out / "metrics.json").read_text())["trials"]
    assert trial["status"] == "failed"
    assert trial["error"].startswith(f"h2o-xgboost does not train on {H100}: ")
    assert "Run `pip uninstall -y xgboost-cpu && pip install --no-deps 'xgboost>=2.1'`" in trial["error"]
    assert not (out / "trials" / trial["name"] / "predictions.parquet").exists()


def test_a_card_that_falls_off_the_bus_ends_no_monitor(simulate, tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from sparkgpu.core.host.monitor import Monitor\n"
        "gpus = ('GPU-0000-00', 'GPU-1111-00')\n"
        "with Monitor(Path(sys.argv[1]), lambda: {}, 0.1, gpus=gpus):\n"
        "    print('on', flush=True)\n"
        "    input()\n"
        "    time.sleep(0.5)\n"
    )
    environment = simulate(gpu(0), gpu(1))
    samples = tmp_path / "telemetry.csv"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(samples)], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as monitor:  # fmt: skip
        assert monitor.stdin and monitor.stdout and monitor.stdout.readline() == "on\n"
        deadline = time.monotonic() + 20
        while not (samples.exists() and samples.read_text().count("250.0") >= 4):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        lines = Path(environment["SIMULATED_NVML"]).read_text().splitlines()
        Path(environment["SIMULATED_NVML"]).write_text(
            "\n".join([lines[0], lines[1].replace("|90|0|0", "|90|15|0"), lines[2]])
        )
        monitor.communicate("\n", timeout=20)
    lost, other = read_telemetry(samples)[-1].gpus
    assert (lost.gpu_util, lost.gpu_mem_bytes, lost.gpu_power_w) == (None, None, None)
    assert other.gpu_power_w == 250.0


SEEN = """
import os, sys
from sparkgpu.core.host.gpus import is_on_gpu
machine = open(os.environ["SIMULATED_NVML"]).read()
for running in ([], [os.getpid(), 1], [1], [1, 2**22 + 1]):
    lines = [f"process|GPU-0000-00|{pid}" for pid in running]
    open(os.environ["SIMULATED_NVML"], "w").write("\\n".join([machine.strip(), *lines]))
    print(is_on_gpu("GPU-0000-00", {os.getpid(), 2**22 + 5}), is_on_gpu("GPU-9", {os.getpid()}))
"""


def test_nvml_tells_whether_a_process_is_on_a_gpu_unless_it_numbers_processes_as_the_host(simulate) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SEEN],
        env=simulate(gpu(0)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout.split("\n") == ["None None", "True None", "False None", "None None", ""]


SAMPLER = """
import os, subprocess, sys, time
from pathlib import Path
from sparkgpu.core.host.monitor import Monitor
worker = subprocess.Popen([sys.executable, "-c", sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child = int(worker.stdout.readline())
machine = Path(os.environ["SIMULATED_NVML"])
text = machine.read_text().replace("WORKER", str(worker.pid)).replace("CHILD", str(child))
machine.write_text(text.replace("OTHER", "1"))
samples = Path(sys.argv[1])
gpus = ("GPU-0000-00", "GPU-1111-00", "MIG-aaaa")
with Monitor(samples, lambda: {os.getpid(): "run", worker.pid: "0/trees"}, 0.2, gpus=gpus):
    deadline = time.monotonic() + 20
    while not samples.exists() or samples.read_text().count(os.linesep) < 9:
        assert time.monotonic() < deadline
        time.sleep(0.05)
worker.communicate()
print(worker.pid, child)
"""
WORKER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
"""


def test_traffic_and_the_processes_of_the_run_are_seen_on_each_gpu(simulate, tmp_path: Path) -> None:
    """As a lane's worker starts H2O's JVM: what NVML sees is the worker's child."""
    mib = 2**20
    environment = simulate(
        gpu(0), f"load|GPU-0000-00|93|412000|{300 * mib}|{20 * mib}|{900 * mib}|{800 * mib}|1",
        "process|GPU-0000-00|CHILD", "process|GPU-0000-00|OTHER",
        gpu(1), "process|GPU-1111-00|WORKER",
        gpu(2, mig=1), mig_slice("aaaa", 1), "process|MIG-aaaa|OTHER",
    )  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", SAMPLER, str(tmp_path / "samples.csv"), WORKER],
        env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    worker, child = ended.stdout.split()
    counted, older, part = read_telemetry(tmp_path / "samples.csv")[-1].gpus
    assert (counted.gpu_uuid, counted.gpu_util, counted.gpu_power_w) == ("GPU-0000-00", 93, 412.0)
    assert counted.gpu_mem_total_bytes == 2 * (counted.gpu_mem_bytes or 0) == 80 * GIB
    assert counted.gpu_pcie_rx_bytes_per_s == pytest.approx(300 * mib, rel=0.05)
    assert counted.gpu_pcie_tx_bytes_per_s == pytest.approx(20 * mib, rel=0.05)
    assert counted.gpu_nvlink_rx_bytes_per_s == pytest.approx(900 * mib, rel=0.05)
    assert counted.gpu_nvlink_tx_bytes_per_s == pytest.approx(800 * mib, rel=0.05)
    assert (counted.gpu_processes, counted.gpu_other_processes) == ((f"0/trees:{child}",), 1)
    assert (older.gpu_pcie_rx_bytes_per_s, older.gpu_nvlink_rx_bytes_per_s) == (None, None)
    assert older.gpu_processes == (f"0/trees:{worker}",)
    assert (part.gpu_uuid, part.gpu_util, part.gpu_pcie_rx_bytes_per_s) == ("MIG-aaaa", None, None)
    assert (part.gpu_processes, part.gpu_other_processes) == ((), 1)
