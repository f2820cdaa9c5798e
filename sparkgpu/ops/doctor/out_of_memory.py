"""A step that does not fit the memory, and goes on: ``python -m sparkgpu.ops.doctor.out_of_memory [--cpu]``.

It leaves some memory on the first GPU that CUDA shows (with ``--cpu``: of its own address space), takes a
step on more rows than fit, and prints one JSON object: the rows that were tried, and those that fit.
"""

from __future__ import annotations

import argparse
import json
import resource
from pathlib import Path

import torch

from sparkgpu.neural.nets.dropout import Place
from sparkgpu.neural.nets.mlp import MLPBlock
from sparkgpu.neural.nets.tabular_net import Members, TabularNet
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.strategies.base import Strategy
from sparkgpu.neural.training.memory import halved, is_out_of_memory, release
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.precision import Precision

_LEFT = 512 * 2**20
_ROWS, _COLUMNS, _WIDTH = 200_000, 16, 1_024


class _Numbers(torch.nn.Module):
    def forward(self, numeric_BG: torch.Tensor, codes_BK: torch.Tensor) -> torch.Tensor:
        return numeric_BG


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    device = torch.device("cpu" if parser.parse_args().cpu else "cuda:0")
    strategy = Strategy(device, Precision(device_type=device.type, dtype=None))
    blocks = [MLPBlock(_COLUMNS, _WIDTH, 0.0), MLPBlock(_WIDTH, _WIDTH, 0.0)]
    net = TabularNet(_Numbers(), blocks, Members(torch.nn.Linear(_WIDTH, 2)))
    strategy.spread(net, Objective(task="binary"))
    rows = ResidentRows(
        numeric_NG=torch.randn(_ROWS, _COLUMNS, device=device),
        codes_NK=torch.zeros(_ROWS, 0, dtype=torch.int32, device=device),
        target_N=torch.zeros(_ROWS, dtype=torch.int64, device=device),
        weight_N=None,
    )
    filler = _leave_little(device, rows.part(slice(1_000)), strategy)
    size, failures = _ROWS, 0
    while True:
        net.zero_grad(set_to_none=True)
        try:
            strategy.backward(rows.part(slice(size)), Place(seed=0, step=0, first_row=0, batch_rows=size))
            if device.type == "cuda":
                torch.cuda.synchronize()
            break
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            failures += 1
        release(device)
        size = halved(size)
    del filler
    print(json.dumps({"tried": _ROWS, "fits": size, "failures": failures}))


def _leave_little(device: torch.device, few: ResidentRows, strategy: Strategy) -> torch.Tensor | None:
    """Take all but a little of the memory, after a small step for which libraries allocate, too."""
    strategy.backward(few, Place(seed=0, step=0, first_row=0, batch_rows=len(few)))
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(device)
        return torch.empty(max(free - _LEFT, 0), dtype=torch.uint8, device=device)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _LEFT, resource.RLIM_INFINITY))
    return None


if __name__ == "__main__":
    main()
