"""A worker sees its own device and threads, and nothing of an outer Spark."""

from __future__ import annotations

from pathlib import Path

from sparkgpu.core.config.registry.engines import Branch
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.h2o.proven import cuda_cache
from sparkgpu.lanes.launch import lane_environment

LANE = LanePlan(
    index=1, device="cuda:1", cuda_visible_devices="GPU-4f", device_name="NVIDIA H200",
    threads=8, tree_threads=6, neural_threads=2, heap_bytes=2**30, port_base=21008,
)  # fmt: skip


def environment(lane: LanePlan, branch: Branch, outer: dict[str, str]) -> dict[str, str]:
    visible = lane.cuda_visible_devices or ""
    return lane_environment(lane, branch, Path("/scratch/lane-1-trees"), visible=visible, environ=outer)


def test_a_worker_sees_the_device_and_threads_of_its_lane_alone() -> None:
    outer = {"CUDA_VISIBLE_DEVICES": "0,1,2", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "MKL_NUM_THREADS": "64"}
    for branch, threads in (("trees", "6"), ("neural", "2")):
        found = environment(LANE, branch, outer)
        assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("GPU-4f", "PCI_BUS_ID")
        assert (found["OMP_NUM_THREADS"], found["MKL_NUM_THREADS"]) == (threads, threads)
    for visible in ("", None):
        lane = LANE.model_copy(update={"device": "cpu", "cuda_visible_devices": visible})
        for outside in ({}, outer):
            assert environment(lane, "neural", outside)["CUDA_VISIBLE_DEVICES"] == ""


def test_what_the_driver_translated_is_kept_where_the_user_says_or_for_all_runs() -> None:
    assert environment(LANE, "trees", {})["CUDA_CACHE_PATH"] == str(cuda_cache())
    assert environment(LANE, "trees", {"CUDA_CACHE_PATH": "/mine"})["CUDA_CACHE_PATH"] == "/mine"


def test_nothing_of_an_outer_spark_or_torchrun_is_inherited_and_the_rest_is() -> None:
    outer = dict.fromkeys(
        (
            "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS", "SPARK_DIST_CLASSPATH",
            "_PYSPARK_DRIVER_CONN_INFO_PATH", "SPARK_LOCAL_DIRS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS",
            "_JAVA_OPTIONS", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        ),
        "25333",
    )  # fmt: skip
    kept = {"HOME": "/home/ada", "AWS_PROFILE": "x", "SPARK_CONF_DIR": "/conf", "JAVA_HOME": "/jdk"}
    found = environment(LANE, "trees", {**outer, **kept, "TMPDIR": "/tmp", "no_proxy": ""})
    assert not outer.keys() & found.keys()
    assert {key: found[key] for key in kept} == kept
    # Temporary files stay in the lane, and connections on this machine.
    assert (found["TMPDIR"], found["SPARK_LOCAL_IP"]) == ("/scratch/lane-1-trees", "127.0.0.1")
    assert found["NO_PROXY"] == found["no_proxy"] == "127.0.0.1,localhost"


def test_the_copies_of_pyspark_that_spark_submit_puts_first_are_not_imported() -> None:
    outer = {
        "SPARK_HOME": "/spark",
        "PYTHONPATH": "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.7-src.zip:"
        "/spark/jars/spark-core_2.12-3.5.9.jar:/spark/python/:/mine:/mine/python",
    }
    assert environment(LANE, "trees", outer)["PYTHONPATH"] == "/mine:/mine/python"
    assert "PYTHONPATH" not in environment(LANE, "trees", {"SPARK_HOME": "/spark"})
