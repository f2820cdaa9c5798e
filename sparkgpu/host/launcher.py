"""What a network needs that trains on several machines: the command that starts its ranks, and how they talk.

The command is the machine room's own (srun and torchrun under Slurm): it stands in a variable of the
environment, readable in the script that sets it, and starts on every machine what is appended to it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from sparkgpu.config.keys import ClusterConfig
from sparkgpu.errors import ConfigError, DeviceError

LAUNCHER = "SPARKGPU_LAUNCHER"


def launcher_words(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The launcher as the words of a command. Raises `DeviceError` when there is none."""
    try:
        words = shlex.split(environ.get(LAUNCHER, ""))
    except ValueError as error:
        raise ConfigError(f"{LAUNCHER} is no command line ({error}); mend its quotes.") from None
    if not words:
        raise DeviceError(
            "cluster.nodes is more than 1, but nothing says how ranks are started on other machines: "
            f"{LAUNCHER} is not set. Run this from the network.sbatch that `sparkgpu slurm write` makes, or "
            "set cluster.nodes = 1."
        )
    return words


def network_environment(cluster: ClusterConfig) -> dict[str, str]:
    """NCCL's and gloo's variables for what the configuration says about the network, and for no more."""
    found = {}
    if cluster.interface is not None:
        found["NCCL_SOCKET_IFNAME"] = found["GLOO_SOCKET_IFNAME"] = cluster.interface
    if cluster.infiniband is not None:
        found["NCCL_IB_DISABLE"] = "0" if cluster.infiniband else "1"
    if cluster.p2p_level is not None:
        found["NCCL_P2P_LEVEL"] = cluster.p2p_level
    return found
