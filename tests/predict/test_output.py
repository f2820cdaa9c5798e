"""A file of predictions holds the user's values; in a CSV no text can be a formula of a spreadsheet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from made_table import feature

from sparkgpu.core.table.schema import TableSchema
from sparkgpu.predict.output import PredictionFile, predictions

TEXTS = ["=1+1", "+1+cmd|' /C calc'!A0", "-2", "-1.5e3", "+.5", "@SUM(A1)", "\tx", "-", "plain", None]
SAFE = ["'=1+1", "'+1+cmd|' /C calc'!A0", "-2", "-1.5e3", "+.5", "'@SUM(A1)", "'\tx", "'-", "plain", None]


@pytest.mark.parametrize(("ending", "expected", "name"), [("csv", SAFE, "'=x"), ("parquet", TEXTS, "=x")])
def test_texts_that_a_spreadsheet_would_run_have_an_apostrophe_in_a_csv(
    tmp_path: Path, ending: str, expected: list[str | None], name: str
) -> None:
    schema = TableSchema.model_construct(classes=("=a", "b"), target_type="string", features=(feature("x"),))
    file = tmp_path / f"predicted.{ending}"
    rows = pa.record_batch({"=x": pa.array(TEXTS), "kind": pa.array(TEXTS).dictionary_encode()})
    share_NC = np.tile([0.9, 0.1], (len(TEXTS), 1))
    added = predictions(schema, share_NC, lambda share_NC: share_NC.argmax(axis=1))
    with PredictionFile(file) as written:
        written.write(added, rows)
    read = pd.read_csv(file, dtype=str) if ending == "csv" else pd.read_parquet(file)
    for column in (name, "kind"):
        assert read[column].astype(object).replace(np.nan, None).tolist() == expected
    assert set(read["prediction"]) == ({"'=a"} if ending == "csv" else {"=a"})
