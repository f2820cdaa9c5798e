"""Devices are chosen from the visible ones, and the CPU never replaces a missing GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host import devices
from sparkgpu.core.host.devices import Device, Machine, choose_devices, find_machine
from sparkgpu.core.host.gpus import Gpu


def machine(num_gpus: int, cores: int = 16) -> Machine:
    gpus = tuple(
        Gpu(index=i, uuid=f"GPU-{i}aaaa-bbbb", title="Board", memory_bytes=2**34) for i in range(num_gpus)
    )
    return Machine(cores=cores, memory_bytes=2**36, gpus=gpus, driver="570.1" if gpus else None)


def chosen(on: Machine, gpus: object, visible: str | None = None) -> list[tuple[str, str]]:
    """Name and CUDA_VISIBLE_DEVICES of each lane's device."""
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = choose_devices(on, gpus=gpus, cpu_lanes=None, environ=environ)  # type: ignore[arg-type]
    return [(device.name, device.visible) for device in found]


@pytest.mark.parametrize(
    ("num_gpus", "asked", "visible", "names"),
    [
        (2, None, None, ["cuda:0", "cuda:1"]), (0, None, None, ["cpu"]), (2, None, "", ["cpu"]),
        (3, "all", None, ["cuda:0", "cuda:1", "cuda:2"]),
        (3, ("2", "0"), None, ["cuda:2", "cuda:0"]),  # in the order in which they are asked for
        (3, ("GPU-1aaaa-bbbb",), None, ["cuda:1"]), (3, ("GPU-2",), None, ["cuda:2"]),
    ],
)  # fmt: skip
def test_devices_are_those_asked_for_or_all_visible_gpus_or_else_the_cpu(
    num_gpus: int, asked: object, visible: str | None, names: list[str]
) -> None:
    uuids = {"cpu": "", **{f"cuda:{index}": f"GPU-{index}aaaa-bbbb" for index in range(num_gpus)}}
    assert chosen(machine(num_gpus), asked, visible) == [(name, uuids[name]) for name in names]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("4,5", ["GPU-4aaaa-bbbb", "GPU-5aaaa-bbbb"]),
        ("5,4", ["GPU-5aaaa-bbbb", "GPU-4aaaa-bbbb"]),
        (" 1 , 0 ", ["GPU-1aaaa-bbbb", "GPU-0aaaa-bbbb"]),
        ("GPU-3aaaa-bbbb", ["GPU-3aaaa-bbbb"]),
        ("GPU-3,1", ["GPU-3aaaa-bbbb", "GPU-1aaaa-bbbb"]),
        ("2,-1,3", ["GPU-2aaaa-bbbb"]),
        ("2,9,3", ["GPU-2aaaa-bbbb"]),
        ("1,1,2", ["GPU-1aaaa-bbbb"]),
        ("1,GPU-1aaaa-bbbb", ["GPU-1aaaa-bbbb"]),
    ],
)
def test_an_index_counts_the_entries_of_cuda_visible_devices_up_to_the_first_invalid_one(
    visible: str, expected: list[str]
) -> None:
    found = chosen(machine(6), "all", visible)
    assert found == [(f"cuda:{index}", uuid) for index, uuid in enumerate(expected)]
    assert chosen(machine(6), ("0",), visible) == found[:1]


NONE_HERE = "no GPU is visible here"
NAMED = (
    "names none of the GPUs here (GPU-0aaaa-bbbb, GPU-1aaaa-bbbb). To train on the CPU, ask for it with "
    "--cpu-lanes 1."
)


@pytest.mark.parametrize(
    ("num_gpus", "asked", "visible", "message"),
    [
        (2, "all", "", f"--gpus all: {NONE_HERE} (CUDA_VISIBLE_DEVICES=). Leave --gpus out to use the CPU."),
        (2, "all", "-1", f"--gpus all: {NONE_HERE} (CUDA_VISIBLE_DEVICES=-1). "),
        (2, None, "9,0", f"CUDA_VISIBLE_DEVICES=9,0 {NAMED}"),
        (2, "all", "9,0", f"--gpus all: CUDA_VISIBLE_DEVICES=9,0 {NAMED}"),
        (0, None, "0", "CUDA_VISIBLE_DEVICES=0 names a GPU, and NVIDIA's driver is not here. "),
        (8, ("0", "3"), "4,5",
         "--gpus 0,3: no device 3; visible devices are 0, 1 (CUDA_VISIBLE_DEVICES=4,5). Choose from 0, 1."),
        (2, ("-1",), None, "--gpus -1: no device -1; visible devices are 0, 1. Choose from 0, 1."),
        (3, ("GPU-",), None, "--gpus GPU-: no device GPU-;"),
        (0, ("0",), None, f"--gpus 0: no device 0; {NONE_HERE}. Leave --gpus out to use the CPU."),
        (0, "all", None, f"--gpus all: {NONE_HERE}. Leave --gpus out to use the CPU."),
        (2, (), None, "--gpus: no device is named; give indices such as 0,1 or all."),
        (2, ("1", "GPU-1"), None, "--gpus 1,GPU-1: device GPU-1 is named twice; name each device once."),
    ],
)  # fmt: skip
def test_a_gpu_that_is_absent_is_refused_with_what_is_there_and_never_replaced_by_the_cpu(
    num_gpus: int, asked: object, visible: str | None, message: str
) -> None:
    with pytest.raises(DeviceError) as caught:
        chosen(machine(num_gpus), asked, visible)
    assert str(caught.value).startswith(message)


def test_cpu_lanes_hide_every_gpu_and_need_a_core_each() -> None:
    found = choose_devices(machine(2, cores=2), gpus=None, cpu_lanes=2, environ={})
    assert found == (Device(kind="cpu", name="cpu", title="CPU", visible=""),) * 2
    with pytest.raises(DeviceError) as caught:
        choose_devices(machine(2, cores=2), gpus=None, cpu_lanes=3, environ={})
    assert str(caught.value) == (
        "--cpu-lanes 3: 2 cores are usable here and each lane needs at least one; ask for at most 2."
    )


def test_this_machine_has_cores_and_memory() -> None:
    found = find_machine()
    assert found.cores >= 1
    assert found.memory_bytes > 2**28
    assert (found.driver is None) <= (found.gpus == ())
    assert len({gpu.uuid for gpu in found.gpus}) == len(found.gpus)


def test_a_limit_of_addresses_in_which_native_libraries_hang_is_refused() -> None:
    program = ["prlimit", f"--as={2**30}", sys.executable, "-m", "sparkgpu", "doctor"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3 and done.stderr == (
        "sparkgpu: this shell allows a process 1.0 GiB of addresses, and a worker needs 4. Raise the limit "
        "with `ulimit -v unlimited`.\n"
    )


@pytest.mark.parametrize(
    ("own", "files", "cores", "memory_bytes"),
    [
        ("0::/", {}, 8, 1000),
        ("0::/", {"cpu.max": "200000 100000", "memory.max": "700", "memory.current": "100"}, 2, 600),
        # Slurm and systemd limit a group above that of the process.
        ("0::/job/step", {"job/cpu.max": "max 100000", "job/memory.max": "500", "job/memory.current": "100",
                          "job/memory.stat": "anon 60\ninactive_file 40", "memory.max": "max"}, 8, 440),
        ("4:memory:/job\n5:cpu,cpuacct:/job", {
            "memory/job/memory.limit_in_bytes": "300", "memory/job/memory.usage_in_bytes": "100",
            "cpu/job/cpu.cfs_quota_us": "300000", "cpu/job/cpu.cfs_period_us": "100000"}, 3, 200),
        ("0::/elsewhere", {"memory.max": "90", "memory.current": "100"}, 8, 0),
    ],
)  # fmt: skip
def test_a_limit_of_any_control_group_above_the_process_holds(
    own: str, files: dict[str, str], cores: int, memory_bytes: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(devices, "_CGROUP", tmp_path)
    monkeypatch.setattr(devices, "_OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(devices, "usable_cores", lambda: 8)
    monkeypatch.setattr(devices.psutil, "virtual_memory", lambda: type("", (), {"available": 1000}))
    found = find_machine()
    assert (found.cores, found.memory_bytes) == (cores, memory_bytes)
