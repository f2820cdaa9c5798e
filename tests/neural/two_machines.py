"""A launcher in place of a batch system: it starts two torchrun agents here, as if on two machines.

Usage: ``python two_machines.py PORT RANKS COMMAND...``. Both agents end if one fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time


def main() -> int:
    port, ranks, *command = sys.argv[1:]
    agents = [
        subprocess.Popen(
            [
                sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--nproc-per-node={ranks}",
                "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=two",
                "--local-addr=localhost", *command,
            ],
            env={**os.environ, "MACHINE": str(machine)},
        )
        for machine in range(2)
    ]  # fmt: skip
    while any(agent.poll() is None for agent in agents):
        if any(agent.poll() for agent in agents):  # as srun --kill-on-bad-exit does
            for agent in agents:
                agent.terminate()
        time.sleep(0.1)
    return max(abs(agent.wait()) for agent in agents)


if __name__ == "__main__":
    sys.exit(main())
