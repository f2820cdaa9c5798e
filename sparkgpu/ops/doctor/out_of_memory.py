"""A step that does not fit the memory, and goes on: ``python -m sparkgpu.ops.doctor.out_of_memory [--cpu]``.

It leaves some memory on the first GPU that CUDA shows (with ``--cpu``: of its own address space), takes a
step on more rows than fit, and prints one JSON object: the rows that were tried, and those that fit.
"""

from __future__ import annotations

import argparse
import json
import resource
from itertools import pairwise
from pathlib import Path

import torch

from sparkgpu.neural.training.memory import halved, is_out_of_memory, release

_LEFT = 512 * 2**20
_ROWS, _COLUMNS, _WIDTH = 200_000, 16, 1_024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    device = torch.device("cpu" if parser.parse_args().cpu else "cuda:0")
    widths = (_COLUMNS, _WIDTH, _WIDTH, _WIDTH)
    layers = [torch.nn.Linear(*pair, device=device) for pair in pairwise(widths)]
    net = torch.nn.Sequential(*layers)
    row_NF = torch.randn(_ROWS, _COLUMNS, device=device)
    net(row_NF[:1_000]).sum().backward()  # libraries allocate at their first step, too
    filler = _leave_little(device)
    size, failures = _ROWS, 0
    while True:
        net.zero_grad(set_to_none=True)
        try:
            net(row_NF[:size]).sum().backward()
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


def _leave_little(device: torch.device) -> torch.Tensor | None:
    """Take all but a little of the memory."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(device)
        return torch.empty(max(free - _LEFT, 0), dtype=torch.uint8, device=device)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _LEFT, resource.RLIM_INFINITY))
    return None


if __name__ == "__main__":
    main()
