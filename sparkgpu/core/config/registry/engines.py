"""The engines, with one entry each. One of them, `torch`, trains all networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

from sparkgpu.core.config.registry.entries import Entry, Range, Registry, SearchSpace
from sparkgpu.core.config.values import POWERS

Branch = Literal["trees", "neural"]
"""The kinds of models; each trains in a worker of its own in every lane."""

Rule = Literal["monotone", "interactions"]
"""A rule of ``[rules]`` that a model must be built to keep."""

BRANCHES: tuple[Branch, Branch] = ("trees", "neural")


@dataclass(frozen=True, kw_only=True)
class EngineEntry(Entry):
    """An engine; `load` names its class (`sparkgpu.trials.engine.Engine`), `branch` its kind of model.

    `on_gpu` tells whether it trains on GPUs; with trees deeper than `most_gpu_depth`, or with trees that grow
    leaf by leaf unless `leafwise_on_gpu`, it would leave the GPU. `grows` are the ways in which its trees can
    grow, `distributions` those whose deviance they can minimise. With `needs_h2o` its worker starts Spark and
    H2O first. `package` is the package that pip must install for it, and `module` is what it brings. `fitted`
    names the function that loads a fitted model, as the engine's own `load` does, where that needs less than
    the engine itself. On a Spark cluster it `spreads` one model over the executors, by the ranks of its
    platform (H2O by a cloud of its own); other engines train on one executor. `defaults` go before
    those of `sparkgpu.core.plan.tree_defaults`, with the keys of ``[trees]``, and `round_cost` is the time of
    a round in times that of XGBoost. `search` holds the settings that ``--search`` tries. It `keeps` these
    rules, the monotone ones only with the values in `monotone_with`; the first stands where a key is open.

    An `in_context` engine was trained on other tables, and reads this one's training rows as it predicts. It
    is of the networks' branch, and its `defaults` are the most `rows`, `columns` and `estimators`, the keys
    of ``[tabicl]``.
    """

    branch: Branch = "trees"
    in_context: bool = False
    on_gpu: bool = False
    most_gpu_depth: int | None = None
    leafwise_on_gpu: bool = True
    grows: tuple[str, ...] = ("depthwise", "lossguide")
    distributions: tuple[str, ...] = ("gaussian",)
    needs_h2o: bool = False
    package: str | None = None
    module: str | None = None
    fitted: str | None = None
    spreads: bool = False
    defaults: Mapping[str, float | str] = field(default_factory=dict)
    round_cost: float = 1.0
    keeps: tuple[Rule, ...] = ()
    monotone_with: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    search: SearchSpace = field(default_factory=dict)

    @property
    def missing(self) -> str | None:
        """The command that installs its library, if that is not here."""
        if self.module is None or find_spec(self.module) is not None:
            return None
        return f"pip install '{self.package}'"


_SEARCH: SearchSpace = {
    "learn_rate": Range(low=0.01, high=0.3, log=True),
    "max_leaves": Range(low=8, high=256, log=True, whole=True),
    "max_depth": Range(low=3, high=12, whole=True),
    "min_rows": Range(low=0.1, high=30.0, log=True),
    "sample_rate": Range(low=0.5, high=1.0),
    "col_sample_rate_per_tree": Range(low=0.4, high=1.0),
    "reg_lambda": Range(low=0.05, high=30.0, log=True),
}
_SEARCH_SYMMETRIC: SearchSpace = {
    "learn_rate": Range(low=0.02, high=0.3, log=True),
    "max_depth": Range(low=3, high=10, whole=True),
    "sample_rate": Range(low=0.5, high=1.0),
    "reg_lambda": Range(low=0.5, high=30.0, log=True),
}

ENGINES: Registry[EngineEntry] = Registry(
    "sparkgpu.engines",
    EngineEntry,
    (
        EngineEntry(
            name="h2o-xgboost",
            load="sparkgpu.h2o.engine:H2OXGBoost",
            on_gpu=True,
            most_gpu_depth=15,
            leafwise_on_gpu=False,
            needs_h2o=True,
            package="sparkgpu[h2o]",
            module="pysparkling",
            fitted="sparkgpu.h2o.mojo:load_mojo",
            distributions=tuple(POWERS),
            search=_SEARCH,
            spreads=True,
            keeps=("monotone", "interactions"),
            monotone_with={"tree_method": ("auto", "hist", "gpu_hist", "exact")},
        ),
        EngineEntry(
            name="xgboost",
            load="sparkgpu.trees.xgboost_library:XGBoost",
            on_gpu=True,
            package="sparkgpu[xgboost]",
            module="xgboost",
            distributions=tuple(POWERS),
            search=_SEARCH,
            spreads=True,
            keeps=("monotone", "interactions"),
        ),
        EngineEntry(
            name="lightgbm",
            load="sparkgpu.trees.lightgbm_library:LightGBM",
            package="lightgbm",
            module="lightgbm",
            distributions=tuple(POWERS),
            search=_SEARCH,
            keeps=("monotone", "interactions"),
        ),
        EngineEntry(
            name="catboost",
            load="sparkgpu.trees.catboost_library:CatBoost",
            on_gpu=True,
            package="sparkgpu[catboost]",
            module="catboost",
            search=_SEARCH_SYMMETRIC,
            grows=("symmetric", "depthwise", "lossguide"),
            defaults={
                "grow_policy": "symmetric",
                "max_depth": 6,
                "max_leaves": 0,
                "reg_lambda": 3.0,
                "col_sample_rate_per_tree": 1.0,
                "max_bins": 255,
            },
            round_cost=2.0,
            keeps=("monotone",),
            monotone_with={"grow_policy": ("symmetric",), "tree_method": ("hist",)},
        ),
        # Its authors' figures are of up to 100,000 rows and 2,000 columns.
        EngineEntry(
            name="tabicl",
            load="sparkgpu.neural.in_context.tabicl:TabICL",
            branch="neural",
            in_context=True,
            on_gpu=True,
            package="sparkgpu[tabicl]",
            module="tabicl",
            defaults={"rows": 100_000, "columns": 2_000, "estimators": 8},
        ),
        EngineEntry(
            name="torch",
            load="sparkgpu.neural.engine:Torch",
            branch="neural",
            on_gpu=True,
        ),
    ),
)


def branch_of(engine: str) -> Branch:
    """The kind of models that an engine makes, also if the package that added the engine is gone."""
    try:
        return ENGINES.find(engine).branch
    except ValueError:
        return "trees"
