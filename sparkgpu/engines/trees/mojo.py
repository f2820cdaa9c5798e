"""Applies an H2O model (MOJO) without H2O: by the package xgboost where it is installed, else by Java.

H2O's scoring library then runs in a separate Java process.

N rows, C classes.
"""

from __future__ import annotations

import csv
import math
import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sparkgpu.engines.engine import Model
from sparkgpu.errors import TrialError
from sparkgpu.host.java import find_java
from sparkgpu.jvm.startup import assembly_jar
from sparkgpu.table.rows import Rows
from sparkgpu.table.schema import TableSchema

MOJO = "model.zip"
"""The MOJO's name in a trial's folder."""


def load_mojo(folder: Path, schema: TableSchema) -> Model:
    """The MOJO in a trial's folder."""
    if find_spec("xgboost") is None:
        return MojoModel(folder / MOJO, schema)
    from sparkgpu.engines.trees.mojo_booster import BoosterModel

    return BoosterModel(folder / MOJO, schema)


class MojoModel:
    """A fitted model of H2O (`sparkgpu.engines.engine.Model`); `note` is for its user."""

    note = "H2O's trees are applied in Java; with `pip install 'sparkgpu[xgboost]'` they need none"

    def __init__(self, file: Path, schema: TableSchema) -> None:
        self._file = file
        self._schema = schema

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Values (N,), or probabilities (N, C); a Java process reads the rows as CSV. Raises `TrialError`."""
        with tempfile.TemporaryDirectory(prefix="sparkgpu-mojo-") as name:
            given, found = Path(name) / "rows.csv", Path(name) / "predictions.csv"
            self._write(rows, given)
            self._score(given, found)
            return self._read(found)

    def _score(self, given: Path, found: Path) -> None:
        java = find_java(os.environ) / "bin" / "java"
        command = [
            str(java), "-cp", str(assembly_jar()), "hex.genmodel.tools.PredictCsv", "--decimal",
            "--mojo", str(self._file), "--input", str(given), "--output", str(found),
        ]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if ended.returncode or not found.exists():
            lines = (ended.stderr or ended.stdout).strip().splitlines()
            why = lines[-1] if lines else f"status {ended.returncode}"
            raise TrialError(f"{self._file}: H2O's scoring library cannot apply the model ({why}).")

    def _write(self, rows: Rows, file: Path) -> None:
        """Words for categories, empty for missing values, and numbers with all digits of float32."""
        numeric = {feature.name: index for index, feature in enumerate(self._schema.numeric)}
        coded = {feature.name: index for index, feature in enumerate(self._schema.categorical)}
        columns: list[list[str]] = []
        for feature in self._schema.features:
            if feature.name in numeric:
                values = rows.numeric_NF[:, numeric[feature.name]].tolist()
                columns.append(["" if math.isnan(value) else repr(value) for value in values])
            else:
                words = [*feature.levels, ""]  # code -1 is a missing value
                columns.append([words[code] for code in rows.codes_NK[:, coded[feature.name]].tolist()])
        with file.open("w", encoding="utf-8", newline="") as text:
            writer = csv.writer(text)
            writer.writerow([feature.name for feature in self._schema.features])
            writer.writerows(zip(*columns, strict=True))

    def _read(self, file: Path) -> NDArray[np.float64]:
        """The values; for a classifier, those after the first column, which holds the class."""
        classes = len(self._schema.classes)
        found = np.loadtxt(
            file, delimiter=",", skiprows=1, ndmin=2, usecols=range(1, classes + 1) if classes else (0,)
        )
        return np.asarray(found if classes else found[:, 0], dtype=np.float64)
