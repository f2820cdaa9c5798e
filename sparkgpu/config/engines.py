"""The engines: one entry each. All networks are trained by one of them, `torch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sparkgpu.config.registry import Entry, Registry


@dataclass(frozen=True, kw_only=True)
class EngineEntry(Entry):
    """An engine; `load` names its class (`sparkgpu.engines.engine.Engine`), `branch` what it trains.

    `on_gpu` says whether it trains on GPUs; `most_gpu_depth` is the depth of a tree beyond which it would
    leave the GPU. With `needs_h2o` its worker starts Spark and H2O first. `package` is what pip has to
    install for it. `on_cluster` names the class that trains one model over the executors of a Spark cluster
    (None: the engine has no such form), `gpu_in_cluster` says whether that uses GPUs.
    """

    branch: Literal["trees", "neural"] = "trees"
    on_gpu: bool = False
    most_gpu_depth: int | None = None
    needs_h2o: bool = False
    package: str | None = None
    on_cluster: str | None = None
    gpu_in_cluster: bool = False


ENGINES: Registry[EngineEntry] = Registry(
    "sparkgpu.engines",
    EngineEntry,
    (
        EngineEntry(
            name="h2o-xgboost",
            load="sparkgpu.engines.trees.h2o_xgboost:H2OXGBoost",
            on_gpu=True,
            most_gpu_depth=15,
            needs_h2o=True,
            on_cluster="sparkgpu.engines.trees.h2o_xgboost:H2OXGBoost",
        ),
        EngineEntry(
            name="xgboost",
            load="sparkgpu.engines.trees.xgboost_library:XGBoost",
            on_gpu=True,
            package="sparkgpu[xgboost]",
            on_cluster="sparkgpu.engines.trees.spark_xgboost:SparkXGBoost",
            gpu_in_cluster=True,
        ),
        EngineEntry(
            name="lightgbm",
            load="sparkgpu.engines.trees.lightgbm_library:LightGBM",
            package="sparkgpu[lightgbm]",
        ),
        EngineEntry(
            name="torch",
            load="sparkgpu.engines.neural.engine:Torch",
            branch="neural",
            on_gpu=True,
        ),
    ),
)
