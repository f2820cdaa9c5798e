"""Whether this machine's processor has a unit for bfloat16 matrix products."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkgpu.core.host.devices import find_machine
from sparkgpu.core.host.processor import has_amx

WITH_AMX = "fpu sse2 avx2 avx512f avx512_bf16 amx_bf16 avx512_fp16 amx_tile amx_int8"


@pytest.fixture
def cpuinfo(tmp_path: Path) -> Path:
    return tmp_path / "cpuinfo"


def write(cpuinfo: Path, flags: str) -> None:
    core = f"processor\t: 0\nmodel name\t: made\nflags\t\t: {flags}\nbugs\t\t: none\n\n"
    cpuinfo.write_text(core * 2)


@pytest.mark.parametrize(
    ("flags", "found"),
    [(WITH_AMX, True), ("fpu avx512f avx512_bf16", False), ("fpu amx_tile amx_int8", False), ("", False)],
)
def test_the_kernel_tells_what_the_processor_has(cpuinfo: Path, flags: str, found: bool) -> None:
    write(cpuinfo, flags)
    assert has_amx(cpuinfo, {}) is found


def test_a_machine_that_does_not_tell_has_none(cpuinfo: Path) -> None:
    assert not has_amx(cpuinfo, {})
    cpuinfo.write_text("processor : 0\nFeatures : asimd bf16\n")  # another kind of processor
    assert not has_amx(cpuinfo, {})


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ("avx512_core_amx", True), ("AVX512_CORE_AMX_FP16", True), ("ALL", True), ("", True),
        ("AVX512_CORE_FP16", False), ("AVX2", False),
    ],
)  # fmt: skip
def test_a_unit_that_onednn_may_not_use_does_not_count(cpuinfo: Path, limit: str, found: bool) -> None:
    write(cpuinfo, WITH_AMX)
    assert has_amx(cpuinfo, {"ONEDNN_MAX_CPU_ISA": limit}) is found


def test_the_machine_has_what_torch_finds() -> None:
    import torch

    assert has_amx(environ={}) == torch.cpu._is_amx_tile_supported()
    assert find_machine().has_amx == has_amx()
