"""Applies an H2O model (MOJO) without H2O: by the package xgboost where it is installed, else by Java.

In Java, ``PredictCsv`` of H2O's scoring library does it, which also checks the MOJO of each trial.

N rows, C classes.
"""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.java import find_java
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.h2o.startup import UTF8, assembly_jar
from sparkgpu.prepare.pyspark_internals import java_texts
from sparkgpu.trials.engine import Model

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

MOJO = "model.zip"
"""The MOJO's name in a trial's folder."""

_PROGRAM = "hex.genmodel.tools.PredictCsv"
_READ_AS_MISSING = ("", "NA", "N/A", "-")


def load_mojo(folder: Path, schema: TableSchema, java: JVMView | None = None) -> Model:
    """The MOJO in a trial's folder; `java` is a JVM at hand."""
    if find_spec("xgboost") is None:
        return MojoModel(folder / MOJO, schema, java)
    from sparkgpu.h2o.mojo_booster import BoosterModel

    return BoosterModel.read(folder / MOJO, schema)


class MojoModel:
    """A fitted model of H2O (`sparkgpu.trials.engine.Model`); `note` is for its user.

    `java` is a JVM with H2O on its class path. Without it, each prediction starts one.
    """

    note = "H2O's trees are applied in Java; with `pip install 'sparkgpu[xgboost]'` they need none"

    def __init__(self, file: Path, schema: TableSchema, java: JVMView | None = None) -> None:
        self._file = file
        self._schema = schema
        self._java = java

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Values (N,), or probabilities (N, C). Java reads the rows as CSV. Raises `TrialError`."""
        if not (is_readable_N := self.can_read(rows)).all():
            raise TrialError(
                f"{self._file}: {(~is_readable_N).sum()} rows hold a category that H2O's scoring library "
                "takes for a missing value, such as 'NA' or '-'. Run `pip install 'sparkgpu[xgboost]'`."
            )
        with tempfile.TemporaryDirectory(prefix="sparkgpu-mojo-") as name:
            given, found = Path(name) / "rows.csv", Path(name) / "predictions.csv"
            self._write(rows, given)
            arguments = ["--decimal", "--mojo", self._file, "--input", given, "--output", found]
            self._score([str(argument) for argument in arguments])
            return self._read(found)

    def can_read(self, rows: Rows) -> NDArray[np.bool_]:
        """Which rows (N,) hold only texts that ``PredictCsv`` reads as they are."""
        found_N = np.ones(len(rows.row_id_N), dtype=np.bool_)
        for place, feature in enumerate(self._schema.categorical):
            odd = [
                code for code, text in enumerate(feature.levels) if text in _READ_AS_MISSING or "\r" in text
            ]
            found_N &= ~np.isin(rows.codes_NK[:, place], odd)
        return found_N

    def _score(self, arguments: list[str]) -> None:
        if self._java is not None:
            from py4j.protocol import Py4JJavaError

            try:
                (texts,) = java_texts(self._java, [arguments])
                self._java.hex.genmodel.tools.PredictCsv.make(texts, None).run()
            except Py4JJavaError as error:
                raise self._cannot_be_applied(str(error.java_exception)) from None
            return
        java = find_java(os.environ) / "bin" / "java"
        command = [str(java), UTF8, "-cp", str(assembly_jar()), _PROGRAM, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if ended.returncode:
            lines = (ended.stderr or ended.stdout).strip().splitlines()
            raise self._cannot_be_applied(lines[-1] if lines else f"status {ended.returncode}")

    def _cannot_be_applied(self, why: str) -> TrialError:
        return TrialError(f"{self._file}: H2O's scoring library cannot apply the model ({why}).")

    def _write(self, rows: Rows, file: Path) -> None:
        numeric = {feature.name: place for place, feature in enumerate(self._schema.numeric)}
        coded = {feature.name: place for place, feature in enumerate(self._schema.categorical)}
        columns: list[list[str]] = []
        for feature in self._schema.features:
            if feature.name in numeric:
                values = rows.numeric_NF[:, numeric[feature.name]].tolist()
                # An infinite number is missing to H2O.
                columns.append([repr(value) if math.isfinite(value) else "NA" for value in values])
            else:
                texts = [*map(_quoted, feature.levels), "NA"]  # code -1 is a missing value
                columns.append([texts[code] for code in rows.codes_NK[:, coded[feature.name]].tolist()])
        with file.open("w", encoding="utf-8", newline="") as text:
            text.write(",".join(feature.name for feature in self._schema.features) + "\n")
            text.writelines(",".join(row) + "\n" for row in zip(*columns, strict=True))

    def _read(self, file: Path) -> NDArray[np.float64]:
        """The values; for a classifier, those after the first column, which holds the class."""
        classes = len(self._schema.classes)
        found = np.loadtxt(
            file, delimiter=",", skiprows=1, ndmin=2, usecols=range(1, classes + 1) if classes else (0,)
        )
        return np.asarray(found if classes else found[:, 0], dtype=np.float64)


def _quoted(text: str) -> str:
    """As the reader of H2O's library wants it: it takes a doubled quote at the beginning for a letter."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
