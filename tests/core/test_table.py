"""The prepared table is written whole and read into arrays, and predictions survive a write and a read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_table import feature, made_rows, write_part

from sparkgpu.core.errors import DataError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table import writer
from sparkgpu.core.table.predictions import read_predictions, write_predictions
from sparkgpu.core.table.rows import RowGroups, joined, read_rows
from sparkgpu.core.table.schema import OTHER_LEVEL, TableSchema
from sparkgpu.core.table.writer import SplitFile

FEATURES = (feature("width"), feature("colour", "red", "blue", OTHER_LEVEL), feature("count"))


def schema(
    *, classes: tuple[str, ...] = ("no", "yes"), weighted: bool = False, folds: int | None = None
) -> TableSchema:
    return TableSchema(
        source="made.parquet", target="y", task="binary" if classes else "regression", classes=classes,
        features=FEATURES, weighted=weighted, folds=folds, rows=5, splits={"train": 5}, fingerprint="",
    )  # fmt: skip


def rows_of(row_ids: Sequence[int], **more: Any) -> pa.Table:
    """Rows whose values depend on their ids."""
    columns = {
        "width": [i / 2 for i in row_ids],
        "colour": [("red", "blue", OTHER_LEVEL)[i % 3] for i in row_ids],
        "count": row_ids,
    }
    label_N = [i % 2 for i in row_ids]
    return made_rows(FEATURES, columns, label_N, row_id_N=row_ids, **more)


def write_ids(paths: RunPaths, part: int, row_ids: list[int], *, split: str = "train", **more: Any) -> None:
    write_part(paths, split, rows_of(row_ids, **more), part)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(root=tmp_path)


@pytest.mark.parametrize("parts", [1, 20])
@pytest.mark.parametrize("fold", [None, 1])
def test_shares_hold_every_row_once(paths: RunPaths, parts: int, fold: int | None) -> None:
    for part in range(parts):
        ids = list(range(part * 1000, part * 1000 + 1000))
        write_ids(paths, part, ids, fold_N=[row_id % 3 for row_id in ids])
    about = schema(folds=3)
    whole = read_rows(paths, about, "train", fold=fold).row_id_N
    shares = [read_rows(paths, about, "train", fold=fold, share=(rank, 3)) for rank in range(3)]
    assert np.array_equal(np.sort(np.concatenate([share.row_id_N for share in shares])), whole)
    assert max(len(share.row_id_N) for share in shares) < 0.4 * len(whole)


def written(folder: Path, *parts: pa.Table) -> pq.ParquetFile:
    """The file that the writer makes of these rows."""
    file = SplitFile(folder, "a.parquet")
    for rows in parts:
        file.add(rows)
    assert file.close() == sum(rows.num_rows for rows in parts)
    return pq.ParquetFile(folder / "a.parquet")


def test_a_file_holds_the_ids_the_label_and_one_float_column_for_each_feature_without_nulls(
    tmp_path: Path,
) -> None:
    values = {"width": [0.5, np.nan, 1e-30], "colour": ["blue", None, "red"], "count": [1, 2, 3]}
    rows = made_rows(FEATURES, values, [1, 0, 1], weight_N=[2.0, 1, 1], fold_N=[0, 1, 2])
    found = written(tmp_path, rows).read()
    assert {field.name: str(field.type) for field in found.schema} == {
        "row_id": "int64", "label": "int32", "weight": "double", "fold": "int32",
        "width": "float", "colour": "float", "count": "float",
    }  # fmt: skip
    assert not any(field.nullable for field in found.schema)
    np.testing.assert_array_equal(found["width"], np.array(values["width"], np.float32))
    np.testing.assert_array_equal(found["colour"], [1, np.nan, 0])


def test_a_file_has_its_name_only_when_it_is_complete_and_none_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP_ROWS", 10)
    assert SplitFile(tmp_path, "none.parquet").close() == 0
    file = SplitFile(tmp_path, "a.parquet")
    file.add(rows_of(range(20)))
    assert [path.name for path in tmp_path.iterdir()] == [".a.parquet"]
    assert file.close() == 20
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_row_groups_are_of_like_size_and_smaller_in_a_wide_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP_ROWS", 10_000)
    parts = [rows_of(range(first, first + 4_000)) for first in (0, 4_000, 8_000, 100_000)]
    metadata = written(tmp_path, *parts, rows_of(range(200_000, 225_000))).metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [12_000, 9_667, 9_667, 9_666]
    assert groups[0].column(0).statistics.min == 0
    monkeypatch.setattr(writer, "_GROUP_VALUES", 5 * 4_000)  # waits in memory for fewer rows
    assert written(tmp_path, *parts).metadata.num_row_groups == 4


def test_rows_come_in_the_order_of_their_files_with_every_column_in_step(paths: RunPaths) -> None:
    write_ids(paths, 1, [7, 9, 11], weight_N=[0.25, 4, 1])
    write_ids(paths, 0, [1, 3], weight_N=[2, 3])
    rows = read_rows(paths, schema(weighted=True), "train")
    assert rows.row_id_N.tolist() == [1, 3, 7, 9, 11]
    assert rows.label_N.tolist() == [1, 1, 1, 1, 1] and rows.label_N.dtype == np.int64
    assert rows.numeric_NF.tolist() == [[0.5, 1], [1.5, 3], [3.5, 7], [4.5, 9], [5.5, 11]]
    assert rows.codes_NK.tolist() == [[1], [0], [1], [0], [2]]
    assert rows.numeric_NF.dtype == np.float32 and rows.codes_NK.dtype == np.int32
    assert rows.weight_N is not None and rows.weight_N.tolist() == [2, 3, 0.25, 4, 1]
    own = read_rows(paths, schema(), "train", features=False)
    assert own.row_id_N.tolist() == [1, 3, 7, 9, 11] and own.weight_N is None
    assert own.numeric_NF.shape == (5, 0) and own.codes_NK.shape == (5, 0)


@pytest.mark.parametrize("every", [1, 3])
def test_every_row_or_every_third_one_is_read_from_many_blocks(paths: RunPaths, every: int) -> None:
    write_ids(paths, 0, list(range(10_000)))
    write_ids(paths, 1, list(range(10_000, 20_000)))
    rows = read_rows(paths, schema(), "train", every=every)
    wanted_N = np.arange(0, 20_000, every)
    assert (rows.row_id_N == wanted_N).all() and (rows.label_N == wanted_N % 2).all()
    assert (rows.numeric_NF[:, 1] == wanted_N).all() and (rows.codes_NK[:, 0] == wanted_N % 3).all()
    assert rows.numeric_NF.base is None  # no view into the other rows


def test_missing_numbers_are_nan_and_missing_or_unknown_categories_are_minus_one(paths: RunPaths) -> None:
    columns = {
        "width": [np.nan, 1.5, np.nan, 2.5],
        "colour": ["blue", None, "green", OTHER_LEVEL],
        "count": [1, np.nan, 3, np.inf],
    }
    write_part(paths, "test", made_rows(FEATURES, columns, [0, 1, 0, 1]))
    rows = read_rows(paths, schema(), "test")
    np.testing.assert_array_equal(rows.numeric_NF, np.stack([columns["width"], columns["count"]], axis=1))
    assert rows.codes_NK[:, 0].tolist() == [1, -1, -1, 2]


def test_rows_come_in_blocks_of_several_row_groups_with_the_same_values(paths: RunPaths) -> None:
    columns = {"width": np.arange(300.0), "colour": ["red", None, "blue"] * 100, "count": np.arange(300)}
    weight_N, fold_N = np.arange(300) / 7, np.arange(300) % 2
    made = made_rows(FEATURES, columns, np.arange(300) % 2, weight_N=weight_N, fold_N=fold_N)
    write_part(paths, "train", made, group_rows=50)
    folded = schema(weighted=True, folds=2)
    for fold in (None, 1):
        whole = read_rows(paths, folded, "train", fold=fold)
        blocks = list(RowGroups(paths, folded, "train", fold=fold).blocks(np.random.default_rng(0)))
        assert len(blocks) == 6 and blocks[0].row_id_N[0] != 0
        found = joined(sorted(blocks, key=lambda block: block.row_id_N[0]))
        for field in fields(whole):
            np.testing.assert_array_equal(getattr(found, field.name), getattr(whole, field.name))


def test_folds_cut_train_and_valid_out_of_the_training_split(paths: RunPaths) -> None:
    write_ids(paths, 0, [0, 2, 4], fold_N=[0, 1, 1])
    write_ids(paths, 1, [5, 7], fold_N=[2, 0])
    write_ids(paths, 0, [9], split="test")
    folded = schema(folds=3)
    assert read_rows(paths, folded, "train", fold=1).row_id_N.tolist() == [0, 5, 7]
    valid = read_rows(paths, folded, "valid", fold=1)
    assert valid.row_id_N.tolist() == [2, 4] and valid.numeric_NF[:, 1].tolist() == [2, 4]
    assert valid.codes_NK[:, 0].tolist() == [2, 1]
    assert read_rows(paths, folded, "test", fold=1).row_id_N.tolist() == [9]


def test_labels_of_a_regression_stay_exact(paths: RunPaths) -> None:
    label = [0.1, 16_777_217.5]
    columns = {"width": [1.0, 2.0], "colour": ["red"] * 2, "count": [1, 2]}
    write_part(paths, "test", made_rows(FEATURES, columns, label))
    rows = read_rows(paths, schema(classes=()), "test")
    assert rows.label_N.dtype == np.float64 and rows.label_N.tolist() == label


def test_a_split_without_rows_is_refused_with_a_sentence(paths: RunPaths) -> None:
    with pytest.raises(DataError) as refused:
        read_rows(paths, schema(), "valid")
    assert str(refused.value) == (
        f"{paths.table}: the prepared table holds no rows of split valid. Prepare it again."
    )
    write_ids(paths, 0, [1, 2], fold_N=[0, 0])
    with pytest.raises(DataError, match=r"no rows of split valid of fold 1\. Prepare it again\.$"):
        read_rows(paths, schema(folds=2), "valid", fold=1)


@pytest.mark.parametrize("is_parquet", [True, False])
def test_a_broken_file_and_a_table_with_texts_are_refused_with_a_sentence(
    paths: RunPaths, is_parquet: bool
) -> None:
    paths.split("train").mkdir(parents=True)
    file = paths.split("train") / "part-00000.parquet"
    columns = {"row_id": [0], "label": [1], "width": [0.5], "colour": ["red"], "count": [1.0]}
    if is_parquet:
        pq.write_table(pa.table(columns), file)
    else:
        file.write_bytes(b"no Parquet at all")
    said = r"split=train: the prepared table cannot be read \(.+\); start a new run\.$"
    for read in (
        lambda: read_rows(paths, schema(), "train"),
        lambda: list(RowGroups(paths, schema(), "train").blocks()),
    ):
        with pytest.raises(DataError, match=said):
            read()


@pytest.mark.parametrize(
    ("classes", "values", "names"),
    [
        (("no", "yes"), [[0.25, 0.75], [1 / 3, 2 / 3]], ["probability_0", "probability_1"]),
        ((), [1e-3, -2.5e9], ["prediction"]),
    ],
)
def test_predictions_come_back_as_they_were_written(
    paths: RunPaths, classes: tuple[str, ...], values: list[Any], names: list[str]
) -> None:
    path = paths.trial("neural-s7").predictions
    written = {"valid": (np.array([3, 8]), np.array(values)), "test": (np.array([5]), np.array(values[:1]))}
    write_predictions(path, written, schema(classes=classes))
    found = read_predictions(path, schema(classes=classes))
    assert list(found) == ["valid", "test"]
    for split, (row_id_N, values_NC) in written.items():
        np.testing.assert_array_equal(found[split][0], row_id_N)
        np.testing.assert_array_equal(found[split][1], values_NC)
    assert pq.read_schema(path).names == ["row_id", "split", *names]
    assert pq.read_table(path)["split"].to_pylist() == ["valid", "valid", "test"]
    assert [file.name for file in path.parent.iterdir()] == ["predictions.parquet"]


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("sparkgpu.core.table.rows", {"pyarrow", "pandas", "torch", "pyspark", "h2o"}),
        ("sparkgpu.core.table.writer", {"pandas", "torch", "pyspark", "h2o"}),
        ("sparkgpu.prepare.prepare, sparkgpu.prepare.spark_source, sparkgpu.lanes.worker", {"pyspark"}),
    ],
)
def test_importing_what_handles_tables_loads_no_learner(modules: str, heavy: set[str]) -> None:
    code = f"import sys, {modules}; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
