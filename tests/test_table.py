"""The prepared table is read into arrays, and predictions survive a write and a read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkgpu.errors import DataError
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.predictions import read_predictions, write_predictions
from sparkgpu.table.rows import read_rows
from sparkgpu.table.schema import OTHER_LEVEL, Feature, TableSchema


def numeric(name: str) -> Feature:
    return Feature(name=name, source=name, kind="numeric", pipeline=name)


def categorical(name: str, *levels: str) -> Feature:
    return Feature(name=name, source=name, kind="categorical", pipeline=name, levels=levels)


def schema(
    *, classes: tuple[str, ...] = ("no", "yes"), weighted: bool = False, folds: int | None = None
) -> TableSchema:
    return TableSchema(
        source="made.parquet",
        target="y",
        task="binary" if classes else "regression",
        classes=classes,
        features=(numeric("width"), categorical("colour", "red", "blue", OTHER_LEVEL), numeric("count")),
        weighted=weighted,
        folds=folds,
        rows=5,
        splits={"train": 5},
        fingerprint="",
    )


def write_part(
    paths: RunPaths, part: int, row_ids: list[int], *, split: str = "train", **more: list[float]
) -> None:
    """One file whose values depend on its row ids."""
    columns = {
        "row_id": pa.array(row_ids, pa.int64()),
        "label": pa.array([i % 2 for i in row_ids], pa.int32()),
        **{name: pa.array(values) for name, values in more.items()},
        "width": pa.array([i / 2 for i in row_ids], pa.float64()),
        "colour": pa.array([("red", "blue", OTHER_LEVEL)[i % 3] for i in row_ids]),
        "count": pa.array(row_ids, pa.int32()),
    }
    paths.split(split).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), paths.split(split) / f"part-{part:05d}.parquet")


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(root=tmp_path)


def test_rows_come_sorted_by_row_id_with_every_column_in_step(paths: RunPaths) -> None:
    write_part(paths, 0, [7, 3, 11])
    write_part(paths, 1, [1, 9])
    rows = read_rows(paths, schema(), "train")
    assert rows.row_id_N.tolist() == [1, 3, 7, 9, 11]
    assert rows.label_N.tolist() == [1, 1, 1, 1, 1] and rows.label_N.dtype == np.int64
    assert rows.numeric_NF.tolist() == [[0.5, 1], [1.5, 3], [3.5, 7], [4.5, 9], [5.5, 11]]
    assert rows.codes_NK.tolist() == [[1], [0], [1], [0], [2]]
    assert rows.numeric_NF.dtype == np.float32 and rows.codes_NK.dtype == np.int32
    assert rows.weight_N is None


def test_files_already_in_order_are_read_as_they_are(paths: RunPaths) -> None:
    write_part(paths, 0, list(range(20_000)))
    write_part(paths, 1, list(range(20_000, 30_000)))
    rows = read_rows(paths, schema(), "train")
    assert (rows.row_id_N == np.arange(30_000)).all()
    assert (rows.numeric_NF[:, 1] == np.arange(30_000)).all()
    assert (rows.codes_NK[:, 0] == np.arange(30_000) % 3).all()


def test_every_third_row_in_the_order_of_the_ids_can_be_read_alone(paths: RunPaths) -> None:
    write_part(paths, 0, list(range(10_000, 20_000)))
    write_part(paths, 1, list(range(10_000)))
    rows, whole = read_rows(paths, schema(), "train", every=3), read_rows(paths, schema(), "train")
    assert rows.row_id_N.tolist() == list(range(0, 20_000, 3))
    assert rows.numeric_NF.base is None  # no view into the other rows
    assert (rows.numeric_NF == whole.numeric_NF[::3]).all() and (rows.codes_NK == whole.codes_NK[::3]).all()
    assert (rows.label_N == whole.label_N[::3]).all()


def test_missing_numbers_are_nan_and_missing_or_unknown_words_are_minus_one(paths: RunPaths) -> None:
    paths.split("test").mkdir(parents=True)
    columns = {
        "row_id": [0, 1, 2, 3],
        "label": pa.array([0, 1, 0, 1], pa.int32()),
        "width": pa.array([None, 1.5, None, 2.5], pa.float64()),
        "colour": ["blue", None, "green", "(other)"],
        "count": pa.array([1, None, 3, None], pa.int64()),
    }
    pq.write_table(pa.table(columns), paths.split("test") / "part.parquet")
    rows = read_rows(paths, schema(), "test")
    np.testing.assert_array_equal(
        rows.numeric_NF, np.array([[np.nan, 1], [1.5, np.nan], [np.nan, 3], [2.5, np.nan]], dtype=np.float32)
    )
    assert rows.codes_NK[:, 0].tolist() == [1, -1, -1, 2]


def test_a_column_of_nulls_alone_is_read_as_missing(paths: RunPaths) -> None:
    paths.split("test").mkdir(parents=True)
    columns = {
        "row_id": [0, 1],
        "label": pa.array([0, 1], pa.int32()),
        "width": pa.array([None, None], pa.float64()),
        "colour": pa.array([None, None], pa.string()),
        "count": [1, 2],
    }
    pq.write_table(pa.table(columns), paths.split("test") / "part.parquet")
    rows = read_rows(paths, schema(), "test")
    assert np.isnan(rows.numeric_NF[:, 0]).all() and rows.codes_NK[:, 0].tolist() == [-1, -1]


def test_folds_cut_train_and_valid_out_of_the_training_split(paths: RunPaths) -> None:
    write_part(paths, 0, [4, 2, 0], fold=[1, 1, 0])
    write_part(paths, 1, [3, 1], fold=[0, 2])
    write_part(paths, 0, [9], split="test")
    folded = schema(folds=3)
    assert read_rows(paths, folded, "train", fold=1).row_id_N.tolist() == [0, 1, 3]
    valid = read_rows(paths, folded, "valid", fold=1)
    assert valid.row_id_N.tolist() == [2, 4] and valid.numeric_NF[:, 1].tolist() == [2, 4]
    assert valid.codes_NK[:, 0].tolist() == [2, 1]
    assert read_rows(paths, folded, "test", fold=1).row_id_N.tolist() == [9]


def test_weights_and_labels_can_be_read_without_features(paths: RunPaths) -> None:
    write_part(paths, 0, [2, 1], weight=[0.25, 4.0])
    rows = read_rows(paths, schema(weighted=True), "train", features=False)
    assert rows.row_id_N.tolist() == [1, 2] and rows.label_N.tolist() == [1, 0]
    assert rows.weight_N is not None and rows.weight_N.tolist() == [4.0, 0.25]
    assert rows.numeric_NF.shape == (2, 0) and rows.codes_NK.shape == (2, 0)


def test_labels_of_a_regression_stay_exact(paths: RunPaths) -> None:
    paths.split("test").mkdir(parents=True)
    label = [0.1, 16_777_217.5]
    columns = {"row_id": [0, 1], "label": label, "width": [1.0, 2.0], "colour": ["red"] * 2, "count": [1, 2]}
    pq.write_table(pa.table(columns), paths.split("test") / "part.parquet")
    rows = read_rows(paths, schema(classes=()), "test")
    assert rows.label_N.dtype == np.float64 and rows.label_N.tolist() == label


def test_a_split_without_rows_is_refused_with_a_sentence(paths: RunPaths) -> None:
    with pytest.raises(DataError) as refused:
        read_rows(paths, schema(), "valid")
    assert str(refused.value) == (
        f"{paths.table}: the prepared table holds no rows of split valid. Prepare it again."
    )
    write_part(paths, 0, [1, 2], fold=[0, 0])
    with pytest.raises(DataError, match=r"no rows of split valid of fold 1\. Prepare it again\.$"):
        read_rows(paths, schema(folds=2), "valid", fold=1)


def test_a_broken_file_is_refused_with_a_sentence(paths: RunPaths) -> None:
    paths.split("train").mkdir(parents=True)
    (paths.split("train") / "part-00000.parquet").write_bytes(b"no Parquet at all")
    with pytest.raises(DataError, match=r"split=train: the prepared table cannot be read \(.+\)\.$"):
        read_rows(paths, schema(), "train")


def test_probabilities_come_back_as_they_were_written(paths: RunPaths) -> None:
    path = paths.trial("neural-s7").predictions
    written = {
        "valid": (np.array([3, 8]), np.array([[0.25, 0.75], [1 / 3, 2 / 3]])),
        "test": (np.array([5]), np.array([[1.0, 0.0]])),
    }
    write_predictions(path, written, schema())
    found = read_predictions(path, schema())
    assert list(found) == ["valid", "test"]
    for split, (row_id_N, values_NC) in written.items():
        np.testing.assert_array_equal(found[split][0], row_id_N)
        np.testing.assert_array_equal(found[split][1], values_NC)
    assert pq.read_schema(path).names == ["row_id", "split", "probability_0", "probability_1"]
    assert pq.read_table(path)["split"].to_pylist() == ["valid", "valid", "test"]
    assert [file.name for file in path.parent.iterdir()] == ["predictions.parquet"]


def test_predicted_values_come_back_as_they_were_written(paths: RunPaths) -> None:
    path = paths.trial("neural-s7").predictions
    values_N = np.array([1e-3, 1e9, -2.5])
    write_predictions(path, {"test": (np.arange(3), values_N)}, schema(classes=()))
    row_id_N, found_N = read_predictions(path, schema(classes=()))["test"]
    np.testing.assert_array_equal(found_N, values_N)
    assert row_id_N.dtype == np.int64 and found_N.shape == (3,)
    assert pq.read_schema(path).names == ["row_id", "split", "prediction"]


def test_importing_the_reader_loads_neither_arrow_nor_a_learner() -> None:
    heavy = {"pyarrow", "pandas", "torch", "pyspark", "h2o"}
    code = f"import sys, sparkgpu.table.rows; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
