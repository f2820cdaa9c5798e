"""What this machine's processor offers: the usable cores, and a unit of its own for bfloat16, Intel's AMX.

Only that unit is worth it: AVX512_BF16 alone measured slower than float32
(benchmarks/results/2026-11-networks.md). torch is not asked, since the parent process does not load it.
Limits: Linux on x86-64. Nothing is timed: a choice by speed would depend on what else the machine does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_FLAG = "amx_bf16"  # the kernel hides what it does not support
_LIMIT = "ONEDNN_MAX_CPU_ISA"
"""Keeps oneDNN, which computes torch's products, from newer instructions."""


def has_amx(cpuinfo: Path = _CPUINFO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether oneDNN multiplies bfloat16 matrices by AMX here."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    limit = environ.get(_LIMIT, "").upper() or "ALL"
    return _FLAG in flags and ("AMX" in limit or limit in ("ALL", "DEFAULT"))


def usable_cores() -> int:
    """The cores that this process may use, at least one, whatever its OpenMP variables say.

    A container's quota is not in it.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
