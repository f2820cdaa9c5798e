"""For a network on several machines: the command that starts its ranks, and their network settings.

The command is specific to the cluster (srun and torchrun under Slurm). It is in an environment variable,
which the batch script sets. It runs on every machine the arguments that are appended to it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from sparkgpu.core.config.keys import ClusterConfig
from sparkgpu.core.errors import ConfigError, DeviceError

LAUNCHER = "SPARKGPU_LAUNCHER"


def launcher_words(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The launcher as the words of a command. Raises `DeviceError` if there is none."""
    try:
        words = shlex.split(environ.get(LAUNCHER, ""))
    except ValueError as error:
        raise ConfigError(f"{LAUNCHER} is not a valid command line ({error}); correct its quotes.") from None
    if not words:
        raise DeviceError(
            "cluster.nodes is more than 1, but the command that starts ranks on other machines is unknown: "
            f"{LAUNCHER} is not set. Run this from the network.sbatch that `sparkgpu slurm write` makes, or "
            "set cluster.nodes = 1."
        )
    return words


def network_environment(cluster: ClusterConfig) -> dict[str, str]:
    """The variables of NCCL and gloo for the configured network settings, and no others."""
    found = {}
    if cluster.interface is not None:
        found["NCCL_SOCKET_IFNAME"] = found["GLOO_SOCKET_IFNAME"] = cluster.interface
    if cluster.infiniband is not None:
        found["NCCL_IB_DISABLE"] = "0" if cluster.infiniband else "1"
    if cluster.p2p_level is not None:
        found["NCCL_P2P_LEVEL"] = cluster.p2p_level
    return found
