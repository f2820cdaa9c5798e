"""Devices are chosen from the visible ones, and the CPU never replaces a missing GPU."""

from __future__ import annotations

import pytest

from sparkgpu.errors import DeviceError
from sparkgpu.host.devices import Device, Machine, choose_devices, find_machine
from sparkgpu.host.gpus import Gpu


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


def refusal(on: Machine, gpus: object, visible: str | None = None) -> str:
    with pytest.raises(DeviceError) as caught:
        chosen(on, gpus, visible)
    return str(caught.value)


def test_left_out_means_every_visible_gpu_and_one_cpu_lane_where_there_is_none() -> None:
    assert chosen(machine(2), None) == [("cuda:0", "GPU-0aaaa-bbbb"), ("cuda:1", "GPU-1aaaa-bbbb")]
    assert chosen(machine(0), None) == [("cpu", "")]
    assert chosen(machine(2), None, visible="") == [("cpu", "")]


def test_all_means_every_visible_gpu() -> None:
    assert [name for name, _ in chosen(machine(3), "all")] == ["cuda:0", "cuda:1", "cuda:2"]
    assert chosen(machine(3), "all", visible="2") == [("cuda:0", "GPU-2aaaa-bbbb")]


def test_indices_are_taken_in_the_order_they_are_asked_for() -> None:
    assert chosen(machine(3), ("2", "0")) == [("cuda:2", "GPU-2aaaa-bbbb"), ("cuda:0", "GPU-0aaaa-bbbb")]


def test_a_uuid_or_its_unambiguous_beginning_names_a_gpu() -> None:
    assert chosen(machine(3), ("GPU-1aaaa-bbbb",)) == [("cuda:1", "GPU-1aaaa-bbbb")]
    assert chosen(machine(3), ("GPU-2",)) == [("cuda:2", "GPU-2aaaa-bbbb")]
    assert "no device GPU-;" in refusal(machine(3), ("GPU-",))


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


@pytest.mark.parametrize("visible", ["", "-1", "NoDevFiles"])
def test_a_list_that_begins_with_an_invalid_entry_hides_every_gpu(visible: str) -> None:
    assert refusal(machine(2), "all", visible) == (
        f"--gpus all: no GPU is visible here (CUDA_VISIBLE_DEVICES={visible}). "
        "Leave --gpus out to use the CPU."
    )


def test_a_list_that_names_nothing_here_is_said_and_the_cpu_is_not_taken_instead() -> None:
    said = "CUDA_VISIBLE_DEVICES=9,0 names no GPU of this machine"
    advice = "To train on the CPU, ask for it with --cpu-lanes 1."
    assert refusal(machine(2), None, "9,0") == f"{said}. {advice}"
    assert refusal(machine(2), "all", "9,0") == f"--gpus all: {said}. {advice}"
    assert refusal(machine(0), None, "0").startswith(
        "CUDA_VISIBLE_DEVICES=0 names a GPU, and NVIDIA's driver is not here. "
    )


def test_an_absent_gpu_is_refused_naming_what_is_there() -> None:
    assert refusal(machine(8), ("0", "3"), visible="4,5") == (
        "--gpus 0,3: no device 3; visible devices are 0, 1 (CUDA_VISIBLE_DEVICES=4,5). Choose from 0, 1."
    )
    assert refusal(machine(2), ("7",)) == (
        "--gpus 7: no device 7; visible devices are 0, 1. Choose from 0, 1."
    )
    assert refusal(machine(2), ("-1",)).startswith("--gpus -1: no device -1; visible devices are 0, 1.")


def test_a_gpu_that_was_asked_for_is_never_replaced_by_the_cpu() -> None:
    assert refusal(machine(0), ("0",)) == (
        "--gpus 0: no device 0; no GPU is visible here. Leave --gpus out to use the CPU."
    )
    assert refusal(machine(0), "all") == (
        "--gpus all: no GPU is visible here. Leave --gpus out to use the CPU."
    )
    assert refusal(machine(2), ()) == "--gpus: no device is named; give indices such as 0,1 or all."


def test_a_gpu_named_twice_is_refused_however_it_is_spelled() -> None:
    assert refusal(machine(2), ("1", "1")) == ("--gpus 1,1: device 1 is named twice; name each device once.")
    assert refusal(machine(2), ("1", "GPU-1")) == (
        "--gpus 1,GPU-1: device GPU-1 is named twice; name each device once."
    )


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
