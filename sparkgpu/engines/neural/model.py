"""The finished model: it takes raw table columns and predicts. Saved as ``model.json`` and ``model.pt``.

``model.json`` holds all that is needed to build the module (architecture, features, levels, classes, the
target's scale). ``model.pt`` holds only tensors, so loading it never runs code.

N rows (B of a batch), F numeric features, K categorical features, C classes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparkgpu.config.keys import NeuralConfig
from sparkgpu.engines.neural.nets.build import build_net
from sparkgpu.engines.neural.nets.shape import Shape
from sparkgpu.engines.neural.nets.tabm import find_bins
from sparkgpu.engines.neural.preprocess import NumericTransform, QuantileNormal, RobustClip
from sparkgpu.engines.neural.rows.resident import raw_tensors
from sparkgpu.engines.neural.strategies.base import eval_rows
from sparkgpu.engines.neural.training.objective import Objective
from sparkgpu.rundir.files import read_json, write_json
from sparkgpu.table.rows import Rows
from sparkgpu.table.schema import TableSchema

TRANSFORMS: dict[str, type[NumericTransform]] = {
    "tabm": QuantileNormal,
    "realmlp": RobustClip,
    "mlp": QuantileNormal,
    "resnet": QuantileNormal,
}
"""The numeric transform of each architecture."""

_FORMAT = 2
_OF_THE_NETWORK = {"architecture", "hidden", "dropout", "members", "num_bins", "embedding_dim"}


class TabularModel(nn.Module):
    """Numeric transform, network and objective in one module: raw (B, F) and codes (B, K) to predictions.

    Predictions are float64: probabilities (B, C) in the order of the classes, or values (B,).
    """

    def __init__(self, transform: NumericTransform, net: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.transform = transform
        self.net = net
        self.objective = objective

    def forward(self, raw_BF: Tensor, codes_BK: Tensor) -> Tensor:
        return self.objective.predict(self.net(self.transform(raw_BF), codes_BK))

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Predictions for all rows, on the model's device, in evaluation mode."""
        self.eval()
        device = self.transform.knots_FQ.device
        raw_NF, codes_NK = raw_tensors(rows, device)
        size = eval_rows(device)
        with torch.no_grad():
            parts = [
                self(*part)
                for part in zip(torch.split(raw_NF, size), torch.split(codes_NK, size), strict=True)
            ]
        values: NDArray[np.float64] = torch.cat(parts).cpu().numpy()
        return values


def needed_bins(config: NeuralConfig, transform: NumericTransform) -> tuple[Tensor, ...]:
    """Bins for an architecture's piecewise-linear embeddings, from the transform alone."""
    if config.architecture != "tabm":
        return ()
    assert config.num_bins is not None
    return find_bins(transform.quantiles(), config.num_bins)


def save_model(model: TabularModel, folder: Path, config: NeuralConfig, schema: TableSchema) -> None:
    """Write the model's two files, ``model.json`` last: its presence means that the model is complete."""
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    temporary = folder / f".model.pt.{os.getpid()}"
    torch.save(state, temporary)
    temporary.replace(folder / "model.pt")
    objective = model.objective
    write_json(
        folder / "model.json",
        {
            "format": _FORMAT,
            "architecture": {
                **config.model_dump(mode="json", include=_OF_THE_NETWORK),
                "num_outputs": schema.num_outputs,
            },
            "task": objective.task,
            "target": {
                "name": schema.target,
                **{key: getattr(objective, key) for key in ("mean", "std", "low", "high")},
            },
            "classes": list(schema.classes),
            "numeric": [feature.name for feature in schema.numeric],
            "numeric_with_indicator": [schema.numeric[i].name for i in model.transform.missing_M.tolist()],
            "categorical": [
                {"name": feature.name, "levels": list(feature.levels)} for feature in schema.categorical
            ],
        },
    )


def load_model(folder: Path, device: torch.device | str = "cpu") -> TabularModel:
    """Rebuild a saved model on `device`, in evaluation mode.

    Its inputs are the table's columns in the order of `numeric` and `categorical` in ``model.json``. A code
    is a position in `levels`, or -1 for missing or unknown.
    """
    saved: dict[str, Any] = read_json(folder / "model.json")
    assert saved["format"] == _FORMAT
    state = torch.load(folder / "model.pt", map_location="cpu", weights_only=True)
    # Built from its knots, since it derives further tables from them, which are not saved.
    architecture = saved["architecture"]
    kind = TRANSFORMS[architecture["architecture"]]
    transform = kind(state["transform.knots_FQ"], state["transform.missing_M"])
    num_outputs = architecture.pop("num_outputs")
    config = NeuralConfig.model_validate({**architecture, "hidden": tuple(architecture["hidden"])})
    shape = Shape(
        num_numeric=transform.num_outputs,
        num_levels=tuple(len(column["levels"]) for column in saved["categorical"]),
        num_outputs=num_outputs,
        bins=needed_bins(config, transform),
    )
    target = saved["target"]
    target.pop("name")
    objective = Objective(task=saved["task"], **target)
    model = TabularModel(transform, build_net(config, shape), objective)
    model.load_state_dict(state)
    return model.to(device).eval()
