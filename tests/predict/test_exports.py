"""Every exported file, read as its users read it, predicts new rows as the run does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sparkgpu
from sparkgpu.core.table.rows import Rows
from sparkgpu.neural.model import load_model
from sparkgpu.predict.export import export
from sparkgpu.predict.export_formats import FORMATS
from sparkgpu.predict.fitted import FittedModel
from sparkgpu.predict.onnx_columns import input_name

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:values that training never saw"),
]

DOCS = Path(__file__).parents[2] / "docs" / "predict.md"
TASKS = ("binary", "multiclass", "regression")


def people(rows: int, seed: int) -> pd.DataFrame:
    drawn = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "body mass [g]": drawn.normal(4000, 800, rows),
            "island": drawn.choice(["Torgersen", "Biscoe", "Dream", "Anvers"], rows, p=[0.4, 0.3, 0.2, 0.1]),
            "street": [f"s{number}" for number in drawn.zipf(1.3, rows) % 60],
            "since": pd.Timestamp("2024-01-01") + pd.to_timedelta(drawn.integers(0, 700, rows), unit="D"),
            "zone": drawn.integers(1, 4, rows),
        }
    )
    signal = frame["body mass [g]"] / 800 + 2 * (frame["island"] == "Dream") + (frame["since"].dt.month > 6)
    frame["y"] = signal + 0.7 * drawn.normal(size=rows)
    for place, name in enumerate(frame.columns[:-1]):
        frame[name] = frame[name].astype(object).where(drawn.random(rows) > 0.03 * place)
    return frame.infer_objects()


@pytest.fixture(scope="module", params=TASKS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of every engine that needs no JVM; probabilities are calibrated."""
    frame = people(700, 1)
    if request.param != "regression":
        frame["y"] = pd.qcut(frame["y"], 2 if request.param == "binary" else 3, labels=False).map(
            "class {}".format
        )
    done = sparkgpu.run(
        frame, target="y", cpu_lanes=1, also=["lightgbm", "catboost"], quiet=True,
        out=tmp_path_factory.mktemp("exports") / request.param,
        config={
            "trees": {"engine": "xgboost", "ntrees": 25}, "neural": {"architecture": "mlp", "epochs": 4},
            "calibrate": request.param != "regression" or None, "report": {"level": "short"},
            "data": {"roles": {"zone": "categorical", "street": "categorical", "island": "categorical"}},
        },
    )  # fmt: skip
    assert done.exit_code == 0
    return done.path


@pytest.fixture(scope="module")
def new(run: Path) -> pd.DataFrame:
    """Rows that were not trained on, with words that training never saw and a row without any value."""
    rows = people(300, 2).drop(columns=["y"])
    rows.loc[::7, "island"] = "Atlantis"
    rows.loc[::11, "street"] = "s-new"
    rows.loc[5] = None
    return rows


def expected(model: FittedModel, rows: pd.DataFrame) -> Any:
    return model.predict_proba(rows) if model.schema.classes else model.predict(rows)


def as_exported(model: FittedModel, rows: pd.DataFrame) -> tuple[Rows, pd.DataFrame]:
    """The rows as sparkgpu encodes them, and as other programs need them: parts of dates, levels as words."""
    encoded = model.encoder().rows(pa.Table.from_pandas(rows).combine_chunks().to_batches()[0])
    frame = rows.copy()
    for place, feature in enumerate(model.schema.numeric):
        frame[input_name(feature)] = encoded.numeric_NF[:, place]
    (zone,) = (place for place, one in enumerate(model.schema.categorical) if one.source == "zone")
    words = np.array([*model.schema.categorical[zone].levels, None], dtype=object)
    frame["zone"] = words[encoded.codes_NK[:, zone]]  # numbers as texts
    return encoded, frame


@pytest.mark.parametrize("model", ["trees", "neural", "lightgbm", "catboost", "blend"])
def test_a_row_alone_is_predicted_as_among_many(run: Path, new: pd.DataFrame, model: str) -> None:
    fitted = sparkgpu.load(run, model)
    alone = [expected(fitted, new.iloc[[place]]) for place in range(0, len(new), 15)]
    among = expected(fitted, new)[::15]
    np.testing.assert_allclose(np.concatenate(alone), among, atol=1e-6 * max(1, np.abs(among).max()))


def test_trees_are_read_by_the_lines_in_the_documentation(
    run: Path, new: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    for trial, format in (("trees-s7", "xgboost"), ("lightgbm-s7", "lightgbm"), ("catboost-s7", "catboost")):
        export(run, trial, format)
    model = sparkgpu.load(run, "catboost-s7")
    (lines,) = (
        block for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S) if "encoding" in block
    )
    if model.task == "regression":
        lines = lines.replace("Probability", "RawFormulaVal")
    monkeypatch.chdir(run)
    names: dict[str, Any] = {"frame": as_exported(model, new)[1]}
    exec(lines, names)
    for trial, found in (
        ("catboost-s7", names["by_catboost"]),
        ("trees-s7", names["by_xgboost"]),
        ("lightgbm-s7", names["by_lightgbm"]),
    ):
        wanted = expected(sparkgpu.load(run, trial), new)
        wanted = wanted[:, 1] if found.ndim < wanted.ndim else wanted
        np.testing.assert_allclose(found, wanted, atol=1e-6 * max(1, np.abs(wanted).max()), err_msg=trial)


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_a_network_is_read_by_its_library(run: Path, new: pd.DataFrame, format: str) -> None:
    for module in FORMATS[format].needs:
        pytest.importorskip(module)
    model = sparkgpu.load(run, "neural-s7")
    rows, frame = as_exported(model, new)
    file = export(run, "neural-s7", format)
    if format == "torch":
        found = load_model(str(file)).predict(rows)
    else:
        feed = {
            input_name(feature): frame[feature.source].fillna("").to_numpy(object)[:, None]
            for feature in model.schema.categorical
        }
        feed |= {
            input_name(feature): rows.numeric_NF[:, [place]]
            for place, feature in enumerate(model.schema.numeric)
        }
        import onnxruntime

        (found,) = onnxruntime.InferenceSession(file).run(None, feed)
    wanted = expected(model, new)
    np.testing.assert_allclose(found, wanted, atol=FORMATS[format].tolerance * max(1, np.abs(wanted).max()))
