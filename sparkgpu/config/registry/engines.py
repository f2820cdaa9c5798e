"""The engines, with one entry each. One of them, `torch`, trains all networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sparkgpu.config.registry.entries import Entry, Registry


@dataclass(frozen=True, kw_only=True)
class EngineEntry(Entry):
    """An engine; `load` names its class (`sparkgpu.engines.engine.Engine`), `branch` its kind of model.

    `on_gpu` tells whether it trains on GPUs; with trees deeper than `most_gpu_depth`, or with trees that grow
    leaf by leaf unless `leafwise_on_gpu`, it would leave the GPU.
    With `needs_h2o` its worker starts Spark and H2O first. `package` is the package that pip must install for
    it. `fitted` names the function that loads a fitted model, as the engine's own `load` does, where that
    needs less than the engine itself. `on_cluster` names the class that trains one model over the executors
    of a Spark cluster (None: the engine cannot), and `gpu_in_cluster` tells whether that uses GPUs.
    """

    branch: Literal["trees", "neural"] = "trees"
    on_gpu: bool = False
    most_gpu_depth: int | None = None
    leafwise_on_gpu: bool = True
    needs_h2o: bool = False
    package: str | None = None
    fitted: str | None = None
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
            leafwise_on_gpu=False,
            needs_h2o=True,
            fitted="sparkgpu.engines.trees.mojo:load_mojo",
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
