"""The entries, with few imports, since every process of a run may read them."""

from sparkgpu.core.config.registry.engines import EngineEntry
from sparkgpu.core.config.registry.metrics_of_packages import MetricEntry
from sparkgpu.core.config.registry.networks import NetworkEntry
from sparkgpu.core.config.registry.source_formats import FormatEntry

FOREST = EngineEntry(name="toy-forest", load="toys.forest:Forest", package="scikit-learn")

NEIGHBOURS = EngineEntry(
    name="toy-neighbours",
    load="toys.neighbours:Neighbours",
    branch="neural",
    in_context=True,
    package="scikit-learn",
    defaults={"rows": 5_000, "columns": 100, "estimators": 1},
)

LINEAR = NetworkEntry(
    name="toy-linear",
    load="toys.linear:NETWORK",
    learning={"learning_rate": 1e-2, "weight_decay": 0.0, "schedule": "constant", "dropout": 0.0},
    presets={
        preset: {"hidden": (16,), "epochs": 20, "patience": 5} for preset in ("fast", "balanced", "best")
    },
)

FEATHER = FormatEntry(name="feather", load="toys.feather:open_feather", endings=(".feather",))

COST = MetricEntry(name="toy-cost", load="toys.cost:cost", greater_is_better=False)
