"""The speed at which ranks add up a tensor: ``torchrun ... -m sparkgpu.ops.doctor.all_reduce [--cpu]``.

Rank 0 prints one JSON object: the backend, the number of ranks, and bytes per second of the algorithm and of
the bus (each rank sends and receives 2 (n - 1) / n times the tensor, as NVIDIA's nccl-tests count), and the
seconds of one of the 2 (n - 1) steps for a tensor of one number.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
import torch.distributed as dist

_BYTES = 64 * 2**20
_ROUNDS = 10


def _median_s(values: torch.Tensor, *, on_cpu: bool) -> float:
    """The seconds to replace a tensor by its mean over all ranks."""
    seconds = []
    for _ in range(_ROUNDS):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(values)
        values /= dist.get_world_size()
        if not on_cpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return sorted(seconds)[_ROUNDS // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    on_cpu = parser.parse_args().cpu
    device = torch.device("cpu") if on_cpu else torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    if not on_cpu:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if on_cpu else "nccl")
    ranks = dist.get_world_size()
    values = torch.ones(_BYTES // 4, device=device)
    whole_s = _median_s(values, on_cpu=on_cpu)
    few_s = _median_s(torch.ones(1, device=device), on_cpu=on_cpu)
    right = bool((values == 1.0).all())
    if dist.get_rank() == 0:
        speed = _BYTES / whole_s
        found = {
            "backend": dist.get_backend(),
            "ranks": ranks,
            "bytes_per_s": round(speed),
            "bus_bytes_per_s": round(speed * 2 * (ranks - 1) / ranks),
            "latency_s": few_s / max(1, 2 * (ranks - 1)),
            "right": right,
        }
        print(json.dumps(found))
    os._exit(0)  # destroying the group can wait for ranks that have ended


if __name__ == "__main__":
    main()
