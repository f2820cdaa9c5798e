"""Cuts a model inside H2O back to its best trees; H2O 3.46 predicts with all trees grown until it stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkgpu.engines.trees.booster_bytes import cut_booster

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView


def cut_back(java: JVMView, model_id: str, ntrees: int, trees_per_round: int) -> None:
    """Keep the first `ntrees` rounds of the model called `model_id`, for predictions and for its MOJO.

    A round has one tree per class if there are more than two classes. H2O must be in
    this JVM.
    """
    from py4j.java_gateway import get_field, set_field

    model = java.water.DKV.getGet(model_id)
    info = model.model_info()
    info.updateBoosterBytes(cut_booster(get_field(info, "_boosterBytes"), ntrees * trees_per_round))
    set_field(get_field(model, "_output"), "_ntrees", ntrees)
    java.water.DKV.put(model)
