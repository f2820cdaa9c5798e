"""A booster as ONNX adds up the leaves that xgboost adds up, however rows are encoded; TreeSHAP, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_table import feature
from numpy.typing import NDArray

from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import OTHER_LEVEL, TableSchema, Task
from sparkgpu.h2o.mojo_booster import BoosterModel, matrix_of
from sparkgpu.h2o.mojo_file import Description
from sparkgpu.predict.explain.contributions import exact
from sparkgpu.predict.export_onnx_trees import trees_as_onnx
from sparkgpu.score.calibration import scaled

xgboost = pytest.importorskip("xgboost")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

ROWS = 900
ZONES, STREETS = ("north", "south", OTHER_LEVEL), tuple(f"s{number}" for number in range(60))


def schema_of(task: Task) -> TableSchema:
    return TableSchema(
        source="made", target="y", task=task,
        classes=() if task == "regression" else ("a", "b", "c") if task == "multiclass" else ("no", "yes"),
        features=(
            feature("size_m"), feature("zone", *ZONES), feature("tied"), feature("street", *STREETS),
            feature("constant"),
        ),
        rows=ROWS, splits={"train": ROWS}, fingerprint="",
    )  # fmt: skip


def made_rows() -> Rows:
    drawn = np.random.default_rng(0)
    numeric_NF = drawn.normal(size=(ROWS, 3)) * [1e3, 1, 1]
    numeric_NF[:, 1] = np.round(numeric_NF[:, 1])
    numeric_NF[:, 2] = 4.0
    numeric_NF[::7, 0] = np.nan
    codes_NK = np.stack([drawn.integers(-1, 3, ROWS), drawn.integers(-1, 60, ROWS)], axis=1)
    return Rows(
        row_id_N=np.arange(ROWS), label_N=np.zeros(ROWS), weight_N=None,
        numeric_NF=numeric_NF.astype(np.float32), codes_NK=codes_NK.astype(np.int32),
    )  # fmt: skip


def inputs_of(rows: Rows) -> dict[str, NDArray[Any]]:
    """The inputs of an ONNX file: words that training never saw, too."""
    zones = np.array(["north", "south", "never seen", ""], dtype=object)
    streets = np.array([*STREETS, "no such street"], dtype=object)
    return {
        "size_m": rows.numeric_NF[:, [0]], "tied": rows.numeric_NF[:, [1]],
        "constant": rows.numeric_NF[:, [2]],
        "zone": zones[rows.codes_NK[:, [0]]], "street": streets[rows.codes_NK[:, [1]]],
    }  # fmt: skip


def model_of(
    task: Task, schema: TableSchema, rows: Rows, *, sparse: bool, hot: bool, objective: str | None = None
) -> BoosterModel:
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
    asked = (
        objective
        or {
            "regression": "reg:squarederror",
            "binary": "binary:logistic",
            "multiclass": "multi:softprob",
        }[task]
    )
    parameters = {"objective": asked, "max_depth": 4, "base_score": 0.3}
    if task == "multiclass":
        parameters["num_class"] = 3
    label_N = np.minimum(label_N, 1) if task == "binary" else label_N
    if asked in ("count:poisson", "reg:gamma", "reg:tweedie"):
        label_N = np.exp(label_N / label_N.std())
    booster = xgboost.train(parameters, xgboost.DMatrix(matrix, label=label_N), 12)
    return BoosterModel(described, booster, schema)


@pytest.mark.parametrize("objective", ["count:poisson", "reg:gamma", "reg:tweedie"])
def test_predictions_that_are_exponentials_are_so_in_onnx(objective: str, tmp_path: Path) -> None:
    schema, rows = schema_of("regression"), made_rows()
    model = model_of("regression", schema, rows, sparse=False, hot=True, objective=objective)
    trees_as_onnx(model, schema, tmp_path / "trees.onnx", {})
    session = onnxruntime.InferenceSession(tmp_path / "trees.onnx")
    (found,) = session.run(None, inputs_of(rows))
    assert found.dtype == np.float64 and found.max() > 3 * found.min() > 0
    np.testing.assert_allclose(found, model.predict(rows), rtol=2e-6)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize(("sparse", "hot"), [(False, True), (True, True), (False, False)])
def test_onnxruntime_adds_up_the_leaves_that_xgboost_adds_up(
    task: Task, sparse: bool, hot: bool, tmp_path: Path
) -> None:
    schema, rows = schema_of(task), made_rows()
    model = model_of(task, schema, rows, sparse=sparse, hot=hot)
    file = tmp_path / "trees.onnx"
    temperature = 1.0 if task == "regression" else 1.25
    trees_as_onnx(model, schema, file, {}, temperature)
    session = onnxruntime.InferenceSession(file)
    (found,) = session.run(None, inputs_of(rows))
    expected = model.predict(rows) if temperature == 1 else scaled(model.predict(rows), temperature)
    size = max(np.abs(expected).max(), 1.0)
    assert found.dtype == np.float64 and found.shape == expected.shape
    np.testing.assert_allclose(found / size, expected / size, atol=2e-6)


@pytest.mark.parametrize("hot", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("task", "objective", "scale"),
    [
        ("binary", None, "log-odds"), ("multiclass", None, "log score"), ("regression", None, "value"),
        ("regression", "count:poisson", "log of the value"),
    ],
)  # fmt: skip
def test_contributions_to_trees_of_h2o_add_up_and_are_zero_for_a_constant_column(
    task: Task, objective: str | None, scale: str, sparse: bool, hot: bool
) -> None:
    schema, rows = schema_of(task), made_rows()
    model = model_of(task, schema, rows, sparse=sparse, hot=hot, objective=objective)
    columns = [feature.source for feature in schema.features]
    found = exact(schema, columns, [(1.0, None, model)], rows)
    matrix = xgboost.DMatrix(matrix_of(rows, model.described, schema))
    margin_NG = model.booster.predict(matrix, output_margin=True).reshape(ROWS, -1)
    np.testing.assert_allclose(found.base_NG + found.added_NGM.sum(axis=2), margin_NG, rtol=1e-5, atol=1e-4)
    assert found.scale == scale and np.abs(found.added_NGM[..., columns.index("constant")]).max() == 0
    largest = dict(zip(columns, np.abs(found.added_NGM).max(axis=(0, 1)), strict=True))
    assert max(largest, key=lambda name: largest[name]) == "size_m" and (objective or largest["zone"] > 0.01)
