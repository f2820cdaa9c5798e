"""A booster as ONNX adds up the leaves that xgboost adds up, however its rows are encoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_rows_to_export import ROWS, STREETS, ZONES, inputs_of, made_rows, schema_of

from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import TableSchema, Task
from sparkgpu.h2o.mojo_booster import BoosterModel, matrix_of
from sparkgpu.h2o.mojo_file import Description
from sparkgpu.predict.export_onnx_trees import trees_as_onnx
from sparkgpu.score.calibration import scaled

xgboost = pytest.importorskip("xgboost")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


def model_of(task: Task, schema: TableSchema, rows: Rows, *, sparse: bool, hot: bool) -> BoosterModel:
    """As `BoosterModel` reads one from a MOJO, around a booster that is trained here."""
    words = ("zone", "street") if hot else ()
    widths = [len(ZONES) + 1, len(STREETS) + 1] if hot else []
    described = Description(
        features=("zone", "street", "size_m", "tied", "constant"),
        num_one_hot=len(words),
        offsets=tuple(np.cumsum([0, *widths]).tolist()),
        domains={"zone": tuple(reversed(ZONES)), "street": STREETS[:-1]},  # H2O never saw the last street
        sparse=sparse,
    )
    matrix = matrix_of(rows, described, schema)
    drawn = np.random.default_rng(1)
    signal_N = np.nan_to_num(rows.numeric_NF[:, 0]) + rows.codes_NK[:, 0] + drawn.normal(size=ROWS)
    label_N = signal_N * 50 + 300 if task == "regression" else np.digitize(signal_N, [0.0, 1.5])
    objective = {
        "regression": "reg:squarederror",
        "binary": "binary:logistic",
        "multiclass": "multi:softprob",
    }
    parameters = {"objective": objective[task], "max_depth": 4, "base_score": 0.3}
    if task == "multiclass":
        parameters["num_class"] = 3
    label_N = np.minimum(label_N, 1) if task == "binary" else label_N
    booster = xgboost.train(parameters, xgboost.DMatrix(matrix, label=label_N), 12)
    return BoosterModel(described, booster, schema)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize(("sparse", "hot"), [(False, True), (True, True), (False, False)])
def test_onnxruntime_adds_up_the_leaves_that_xgboost_adds_up(
    task: Task, sparse: bool, hot: bool, tmp_path: Path
) -> None:
    schema, rows = schema_of(task), made_rows()
    model = model_of(task, schema, rows, sparse=sparse, hot=hot)
    file = tmp_path / "trees.onnx"
    temperature = 1.0 if task == "regression" else 1.25
    trees_as_onnx(model, schema, file, temperature)
    session = onnxruntime.InferenceSession(file)
    (found,) = session.run(None, inputs_of(rows))
    expected = model.predict(rows) if temperature == 1 else scaled(model.predict(rows), temperature)
    size = max(np.abs(expected).max(), 1.0)
    assert found.dtype == np.float64 and found.shape == expected.shape
    np.testing.assert_allclose(found / size, expected / size, atol=2e-6)
