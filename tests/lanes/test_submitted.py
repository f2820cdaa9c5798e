"""A run uses the cluster that its configuration or spark-submit names, or this machine."""

from __future__ import annotations

import re

import pytest

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import ClusterConfig, dotted
from sparkgpu.core.errors import ConfigError
from sparkgpu.lanes.cluster.settings import cluster_settings


def test_without_a_master_a_run_stays_on_this_machine() -> None:
    assert cluster_settings(ClusterConfig(), {}) is None
    assert cluster_settings(ClusterConfig(master="local[4]"), {}) is None
    left_over = {"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_GATEWAY_SECRET": "x"}  # of a JVM that has gone
    assert cluster_settings(ClusterConfig(), left_over) is None


def test_the_configuration_names_a_master_and_settings_of_spark() -> None:
    asked = config_io.load(
        assignments=["cluster.master=spark://127.0.0.1:7077", "cluster.spark.executor.memory=4g"]
    )
    found = cluster_settings(asked.cluster, {})
    assert found is not None
    assert found.master == "spark://127.0.0.1:7077"
    assert found.spark == {"spark.executor.memory": "4g", "spark.driver.host": "127.0.0.1"}


def test_settings_of_spark_survive_the_way_through_run_toml() -> None:
    asked = config_io.load(assignments=['cluster.spark={"spark.task.cpus"=2, "executor.cores"="4"}'])
    assert asked.cluster.spark == {"spark.task.cpus": "2", "spark.executor.cores": "4"}
    values = dotted(asked.model_dump(mode="json", exclude_none=True))
    assert values["cluster.spark"] == asked.cluster.spark
    for value in ('{"a" = [1]}', "4"):
        with pytest.raises(ConfigError, match=r"cluster\.spark"):
            config_io.load(assignments=[f"cluster.spark={value}"])


SECRET = "spark.hadoop.fs.s3a.secret.key"


def test_a_secret_is_a_reference_to_the_environment_and_stands_in_no_file_or_message() -> None:
    with pytest.raises(ConfigError) as refused:
        config_io.load(assignments=[f"cluster.spark={{'{SECRET}' = 'hunter2'}}"])
    assert SECRET in str(refused.value) and "${HADOOP_FS_S3A_SECRET_KEY}" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    master = "cluster.master=spark://127.0.0.1:7077"
    asked = config_io.load(assignments=[master, f"cluster.spark={{'{SECRET}' = '${{S3_SECRET}}'}}"])
    assert '"${S3_SECRET}"' in config_io.dump(asked)
    found = cluster_settings(asked.cluster, {"S3_SECRET": "hunter2"})
    assert found is not None and found.spark[SECRET] == "hunter2"
    with pytest.raises(ConfigError, match="the environment has no S3_SECRET"):
        cluster_settings(asked.cluster, {})


@pytest.mark.parametrize(
    ("key", "value", "is_refused"),
    [
        ("hadoop.fs.s3a.access.key", "x", True),
        ("hadoop.fs.cos.accessKey", "x", True),
        ("hadoop.fs.azure.account.key.lake.dfs.core.windows.net", "x", True),
        ("hadoop.fs.azure.sas.box.lake.blob.core.windows.net", "x", True),
        ("executorEnv.HF_TOKEN", "x", True),
        ("ssl.keyPassword", "x", True),
        ("executor.extraJavaOptions", "-Xss4m -Djavax.net.ssl.trustStorePassword=x", True),
        ("jars.repositories", "https://ada:x@jars.example.org/maven", True),
        ("hadoop.fs.s3a.aws.credentials.provider", "org.example.Provider", False),
        ("kerberos.keytab", "/home/ada/ada.keytab", False),
        ("ssl.keyStore", "/etc/keys/token.jks", False),
        ("hadoop.fs.defaultFS", "hdfs://head:8020/ada@home", False),
        ("hadoop.fs.s3a.secret.key", "${S3_SECRET}", False),
    ],
)
def test_what_holds_a_secret_is_known_by_its_name_or_its_value(
    key: str, value: str, is_refused: bool
) -> None:
    assignment = f"cluster.spark={{'{key}' = '{value}'}}"
    if not is_refused:
        assert config_io.load(assignments=[assignment]).cluster.spark == {f"spark.{key}": value}
        return
    with pytest.raises(ConfigError, match=re.escape(f"spark.{key} holds a secret")):
        config_io.load(assignments=[assignment])


def test_executors_elsewhere_are_given_an_address_that_they_can_reach() -> None:
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    found = cluster_settings(ClusterConfig(master="spark://192.0.2.7:7077", spark=loopback), {})
    assert found is not None
    assert not found.spark["spark.driver.host"].startswith("127.")
    assert "spark.driver.bindAddress" not in found.spark


def test_a_master_without_its_scheme_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError) as refused:
        cluster_settings(ClusterConfig(master="head:7077"), {})
    assert str(refused.value) == (
        "cluster.master = 'head:7077' is not a Spark master. Did you mean spark://head:7077? Write "
        "spark://HOST:PORT, yarn, k8s://URL or local."
    )
