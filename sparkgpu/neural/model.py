"""The finished model: it takes raw table columns and predicts. Two files keep it.

``model.json`` holds everything needed to build the module again (parameters, features, levels, classes, the
target's scale), ``model.safetensors`` the tensors alone; loading them never runs code.

N rows (B of a batch), F numeric features, K categorical features, C classes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.errors import TrialError
from sparkgpu.core.rundir.files import read_json, write_json
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.nets.network import build_net, find_network, input_shape
from sparkgpu.neural.preprocess import NumericTransform
from sparkgpu.neural.rows.resident import raw_tensors
from sparkgpu.neural.strategies.base import eval_rows
from sparkgpu.neural.training.memory import in_chunks
from sparkgpu.neural.training.objective import Objective

_FORMAT = 5
TENSORS = "model.safetensors"
_TARGET = ("distribution", "mean", "std", "smear", "low", "high")


class TabularModel(nn.Module):
    """Numeric transform, network and objective in one module: raw (B, F) and codes (B, K) to predictions.

    Predictions are float64: probabilities (B, C) in the order of the classes, or values (B,). `predict` takes
    `chunk_rows` at once (None: as many as suit the kind of device).
    """

    def __init__(
        self,
        transform: NumericTransform,
        net: nn.Module,
        objective: Objective,
        *,
        chunk_rows: int | None = None,
    ) -> None:
        super().__init__()
        self.transform = transform
        self.net = net
        self.objective = objective
        self.chunk_rows = chunk_rows

    def forward(self, raw_BF: Tensor, codes_BK: Tensor) -> Tensor:
        return self.objective.predict(self.net(self.transform(raw_BF), codes_BK))

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Predictions for all rows, in evaluation mode, in chunks that fit the model's device."""
        if self.training:
            self.eval()
        device = self.transform.knots_FQ.device
        size, count = self.chunk_rows or eval_rows(device), len(rows.row_id_N)

        def predicted(part: slice) -> Tensor:
            return self(*raw_tensors(rows.part(part), device)).cpu()  # type: ignore[no-any-return]

        with torch.no_grad():
            parts = list(in_chunks(predicted, count, size, device))
        values: NDArray[np.float64] = torch.cat(parts).numpy()
        return values


def save_model(model: TabularModel, folder: Path, parameters: NeuralParameters, schema: TableSchema) -> None:
    """Write the model's two files, ``model.json`` last: its presence means that the model is complete."""
    state = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
    temporary = folder / f".{TENSORS}.{os.getpid()}"
    save_file(state, temporary)
    temporary.replace(folder / TENSORS)
    objective = model.objective
    write_json(
        folder / "model.json",
        {
            "format": _FORMAT,
            "parameters": parameters.model_dump(mode="json"),
            "num_outputs": schema.num_outputs,
            "task": objective.task,
            "target": {
                "name": schema.target,
                **{key: getattr(objective, key) for key in _TARGET},
            },
            "classes": list(schema.classes),
            "numeric": [feature.name for feature in schema.numeric],
            "numeric_with_indicator": [schema.numeric[i].name for i in model.transform.missing_M.tolist()],
            "categorical": [
                {"name": feature.name, "levels": list(feature.levels)} for feature in schema.categorical
            ],
        },
    )


def load_model(folder: str | Path, device: torch.device | str = "cpu") -> TabularModel:
    """Rebuild a saved model on `device`, in evaluation mode.

    Its inputs are the table's columns in the order of `numeric` and `categorical` in ``model.json``. A code
    is a position in `levels`, or -1 for missing or unknown. Raises `TrialError` for another version's files.
    """
    folder = Path(folder)
    saved: dict[str, Any] = read_json(folder / "model.json")
    if saved["format"] != _FORMAT:
        raise TrialError(
            f"{folder}: another version of sparkgpu saved this network (format {saved['format']}; this one "
            f"reads {_FORMAT}). Run it again, or use that version."
        )
    state = load_file(folder / TENSORS)
    # Where its training rows were does not matter; earlier versions had places that are gone.
    described = {
        key: value for key, value in saved["parameters"].items() if key not in ("data", "dataloader")
    }
    parameters = NeuralParameters.model_validate_json(json.dumps(described))
    # Built from its knots, since it derives further tables from them, which are not saved.
    kind = find_network(parameters).transform
    transform = kind(state["transform.knots_FQ"], state["transform.missing_M"])
    num_levels = tuple(len(column["levels"]) for column in saved["categorical"])
    shape = input_shape(parameters, transform, num_levels, saved["num_outputs"])
    target = saved["target"]
    target.pop("name")
    objective = Objective(task=saved["task"], **target)
    model = TabularModel(transform, build_net(parameters, shape), objective)
    model.load_state_dict(state)
    return model.to(device).eval()
