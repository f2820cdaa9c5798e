"""Where a command runs is seen from its environment alone."""

from __future__ import annotations

import pytest

from sparkgpu.ops.advise.place import find_place


@pytest.mark.parametrize(
    ("environ", "modules", "queue", "kind"),
    [
        ({}, (), False, "terminal"),
        ({}, (), True, "slurm queue"),
        ({}, ("ipykernel", "os"), False, "notebook"),
        ({"JPY_PARENT_PID": "12"}, (), True, "notebook"),
        ({"SLURM_JOB_ID": "7"}, (), True, "slurm job"),
        ({"SLURM_JOB_ID": "7"}, ("ipykernel",), True, "slurm job"),
        ({"PYSPARK_GATEWAY_PORT": "4000", "SLURM_JOB_ID": "7"}, (), False, "spark"),
    ],
)
def test_the_innermost_place_counts(
    environ: dict[str, str], modules: tuple[str, ...], queue: bool, kind: str
) -> None:
    assert find_place(environ, modules, has_queue=queue).kind == kind


def test_a_slurm_job_tells_its_nodes_and_their_gpus() -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_GPUS_ON_NODE": "4"}
    assert find_place(environ, (), has_queue=True).found == "Slurm job 7, 3 nodes of 4 GPUs"


def test_a_master_of_the_configuration_is_a_cluster_and_a_local_one_is_not() -> None:
    assert find_place({}, (), master="spark://host:7077", has_queue=False).kind == "spark"
    assert find_place({}, (), master="local[2]", has_queue=False).kind == "terminal"
