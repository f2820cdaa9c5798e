"""A model of a finished run, ready to predict: what `sparkgpu.load` returns.

N rows, C classes.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.core.rundir.intervals import Conformal
from sparkgpu.core.rundir.metrics_json import finished_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.core.words import listed
from sparkgpu.predict.explain.contributions import SAMPLES, Explain, exact, explained, sampling
from sparkgpu.predict.frames import as_reader, batches
from sparkgpu.predict.members import BEST, decision_of, intervals_of, model_name, weights_of
from sparkgpu.predict.output import ENDS, PREDICTION, SET, prediction_columns, predictions, typed_classes
from sparkgpu.prepare.encoding import Encoder, Findings, load_made
from sparkgpu.score import conformal
from sparkgpu.score.calibration import scaled
from sparkgpu.score.decision import decided
from sparkgpu.trials.engine import Model, load_fitted

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame as SparkDataFrame

_SPARK_TYPES = {"i": "long", "f": "double", "b": "boolean", "O": "string"}


class FittedModel:
    """A model of a run: its trees, its network, one of its trials, or the blend.

    `name` is its name in the run and `members` are the weights of its trials; several are averaged. `target`
    is the column it predicts, `task` the kind of task, and `schema` what the run's table holds. It reads
    files only when it is made, so a run directory may be moved, copied, or read-only.

        >>> model = sparkgpu.FittedModel("reports/wine", "trees")
        >>> model.name, model.target, model.feature_names_in_[:2].tolist()
        ('trees', 'target', ['alcohol', 'malic_acid'])
        >>> model.explain(wine.head(1)).filter(like="contribution_").shape
        (3, 13)
    """

    def __init__(self, run_dir: str | Path, model: str = BEST) -> None:
        """Load `model`, a name in the run or ``"best"``: the leader on the validation rows.

        Raises `ConfigError` if the folder holds no finished run or the run no such model, `DataError` if an
        earlier version made it, and `DeviceError` if a package that the model needs is not installed.
        """
        paths = RunPaths(root=Path(run_dir).expanduser().resolve())
        self.run_dir = paths.root
        results = finished_results(paths)
        self._refit = results.refit
        self.name = model_name(results, model, str(run_dir))
        self.schema: TableSchema = read_schema(paths)
        self.task, self.target = self.schema.task, self.schema.target
        self._encoder = Encoder(self.schema, load_made(paths.table, self.schema.features))
        self.members = weights_of(results, self.name)
        self._decision = decision_of(results, self.name)
        self.intervals = intervals_of(results, self.name)
        self.threshold = self._decision.threshold if self._decision else None
        done = {trial.name: trial for trial in results.done()}
        self._is_blend = len({done[trial].model for trial in self.members}) > 1
        self._models: list[tuple[float, float | None, Model]] = [
            (
                weight,
                done[trial].temperature,
                load_fitted(done[trial].engine, paths.trial(trial).root, self.schema),
            )
            for trial, weight in self.members.items()
        ]

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes (C,) in the order of the probabilities, with the target's own type.

        Raises `AttributeError` for a regression, as scikit-learn's regressors do.
        """
        if not self.schema.classes:
            raise AttributeError("a regression has no classes_")
        return typed_classes(self.schema)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The columns that the model needs."""
        return np.array(self._encoder.columns, dtype=object)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about how this model is applied here."""
        found = [*self.notes_of_trials]
        if self._refit:
            found.append(self._refit.sentence)
        if self._decision:
            found.append(f"predictions follow the run's decision: {self._decision.in_words()}")
        if self.intervals:
            share = f"{100 * self.intervals.coverage:g} %"
            found.append(f"{self._sure} should hold the truth in {share} of rows like those of the run")
        return tuple(found)

    @property
    def notes_of_trials(self) -> tuple[str, ...]:
        notes = (getattr(model, "note", None) for *_, model in self._models)
        return tuple(dict.fromkeys(note for note in notes if note))

    def encoder(self) -> Encoder:
        """A new encoder of rows for this model, which counts what is unusual in them."""
        encoder = copy.copy(self._encoder)  # what it looks levels up in is made once
        encoder.findings = Findings()
        return encoder

    def predict(self, data: Any) -> NDArray[Any]:
        """The predicted classes (N,), or values (N,) of a regression, in the order of the rows of `data`.

        `data` is a pandas, polars or pyarrow table, or any frame that exports Arrow. Other columns are
        ignored. Warns of values that count as missing because training never saw them, or because they cannot
        be read. Raises `DataError` if a column is absent or of a type that cannot be read.
        """
        values = self._values(data)
        if not self.schema.classes:
            return values
        return np.asarray(self.classes_[self.decided(values)])

    def predict_proba(self, data: Any) -> NDArray[np.float64]:
        """The probabilities (N, C) in the order of `classes_`. Raises `AttributeError` for a regression."""
        if not self.schema.classes:
            raise AttributeError("a regression has no probabilities; use predict")
        return self._values(data)

    def predict_interval(self, data: Any) -> NDArray[np.float64]:
        """The lower and upper ends (N, 2) of the intervals of a regression, infinite where rows were too few.

        Raises `ConfigError` for classes, and if the run has no intervals.
        """
        return conformal.intervals(self._conformal("predict_interval", classes=False), self._values(data))

    def predict_set(self, data: Any) -> NDArray[np.bool_]:
        """Which classes (N, C), in the order of `classes_`, the set of each row holds; none if it is empty.

        Raises `ConfigError` for a regression, and if the run has no sets.
        """
        return conformal.sets(self._conformal("predict_set", classes=True), self._values(data))

    def explain(self, data: Any, *, samples: int = SAMPLES) -> pd.DataFrame:
        """What each column added to the prediction of each row of `data`, as ``sparkgpu explain`` writes it.

        A line for each row and class: `row`, `class`, `scale`, `base`, a ``contribution_`` of each column,
        and `prediction`, their sum; of trees exact, and else sampled with so many rows of the run, with an
        ``error_`` of each column. Takes and warns of what `predict` does, and raises `DataError` as it does;
        `ConfigError` if `samples` are below 2, or the run's table is gone.
        """
        reader, encoder = as_reader(data), self.encoder()
        encoder.check(reader.schema.names, "the data")
        parts = [*explained(batches(reader), self.schema, encoder, self.explainer(samples))]
        if not parts:
            raise DataError("the data has no rows, so nothing can be explained. Give some.")
        for sentence in encoder.findings.sentences():
            warnings.warn(sentence, stacklevel=2)
        found: pd.DataFrame = pa.concat_tables(map(pa.table, parts)).to_pandas()
        return found

    def explainer(self, samples: int) -> Explain:
        """Explains encoded rows."""
        columns = self._encoder.columns
        if self.is_sampled:
            return sampling(RunPaths(root=self.run_dir), self.schema, columns, self.of_rows, samples)
        return partial(exact, self.schema, columns, self._models)

    @property
    def is_sampled(self) -> bool:
        """Whether `explain` samples: all but trials of one model, whose library knows its trees' values."""
        return self._is_blend or not all(getattr(model, "contributions", None) for *_, model in self._models)

    def _conformal(self, asked: str, *, classes: bool) -> Conformal:
        if classes != bool(self.schema.classes):
            kind = "classes; use predict_set" if self.schema.classes else "numbers; use predict_interval"
            raise ConfigError(f"{asked}: this model predicts {kind}.")
        if self.intervals is None:
            raise ConfigError(
                f"{asked}: {self.name} has none. `sparkgpu run --resume --out {self.run_dir} --intervals .9` "
                "gives them to the models of the run, but not to one of several trials of a model."
            )
        return self.intervals

    @property
    def _sure(self) -> str:
        return SET if self.schema.classes else " to ".join(ENDS)

    def columns(self, values: NDArray[np.float64]) -> dict[str, pa.Array]:
        """The columns of a prediction from values (N,) or probabilities (N, C)."""
        return predictions(self.schema, values, self.decided, self.intervals)

    def transform(self, frame: SparkDataFrame) -> SparkDataFrame:
        """A Spark DataFrame with the columns of the prediction added, computed on Spark's executors.

        Each of Spark's Python workers loads the model once, so the run directory must have the same path on
        all machines. No H2O and no GPU is needed.
        """
        if not hasattr(frame, "mapInArrow"):
            kind = f"{type(frame).__module__}.{type(frame).__qualname__}"
            raise DataError(f"transform takes a Spark DataFrame, not a {kind}; use predict for other frames.")
        self._encoder.check(frame.columns, "the DataFrame")
        added = prediction_columns(self.schema, self.intervals)
        taken = [name for name in frame.columns if name in added]
        if taken:
            raise DataError(f"the DataFrame has columns {listed(map(repr, taken))} already. Rename them.")
        kind = _SPARK_TYPES[self.classes_.dtype.kind] if self.schema.classes else "double"
        kinds = {PREDICTION: kind, SET: {"type": "array", "elementType": kind, "containsNull": True}}
        whole = frame.schema.jsonValue()  # pyspark is not imported here, and knows lists by a class or so
        whole["fields"] += [
            {"name": name, "type": kinds.get(name, "double"), "nullable": True, "metadata": {}}
            for name in added
        ]
        schema = type(frame.schema).fromJson(whole)
        return frame.mapInArrow(partial(_predicted, str(self.run_dir), self.name), schema)

    def decided(self, probability_NC: NDArray[np.float64]) -> NDArray[np.int64]:
        """The class codes (N,) by the run's rule of decisions; without one, of the most probable classes."""
        return decided(self.schema.decision, self.threshold, probability_NC)

    def values(self, batch: pa.RecordBatch, encoder: Encoder) -> NDArray[np.float64]:
        """Values (N,), or probabilities (N, C), of the rows of one batch."""
        return self.of_rows(encoder.rows(batch))

    def of_rows(self, rows: Rows) -> NDArray[np.float64]:
        """Values (N,), or probabilities (N, C), of encoded rows."""
        if not len(rows.row_id_N):
            return np.empty((0, len(self.schema.classes)) if self.schema.classes else 0)
        total: NDArray[np.float64] = np.zeros(())
        for weight, temperature, model in self._models:
            values = np.asarray(model.predict(rows), np.float64)
            total = total + weight * (values if temperature is None else scaled(values, temperature))
        # Trees give 32-bit probabilities, whose sum is one in fewer digits.
        return total / total.sum(axis=1, keepdims=True) if self.schema.classes else total

    def _values(self, data: Any) -> NDArray[np.float64]:
        reader = as_reader(data)
        encoder = self.encoder()
        encoder.check(reader.schema.names, "the data")
        parts = [self.values(batch, encoder) for batch in batches(reader)]
        for sentence in encoder.findings.sentences():
            warnings.warn(sentence, stacklevel=3)
        if not parts:
            parts = [self.values(pa.RecordBatch.from_pylist([], reader.schema), encoder)]
        return np.concatenate(parts)

    def __repr__(self) -> str:
        return f"<{self.name} of {self.run_dir}: predicts {self.target!r} ({self.task})>"


@lru_cache(maxsize=4)
def loaded(run_dir: str, model: str) -> FittedModel:
    """As `load`, once in each process."""
    return FittedModel(run_dir, model)


def _predicted(run_dir: str, model: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    fitted = loaded(run_dir, model)
    encoder = fitted.encoder()
    for batch in batches:
        values = fitted.values(batch, encoder)
        added = fitted.columns(values)
        names = [*batch.schema.names, *added]
        yield pa.RecordBatch.from_arrays([*batch.columns, *added.values()], names=names)


def load(run_dir: str | Path, model: str = BEST) -> FittedModel | Any:
    """A model of the finished run in `run_dir`, ready to predict; see `FittedModel`.

    `model` is ``"best"`` (the leader on the validation rows), ``"trees"``, ``"neural"``, ``"blend"``, or the
    name of a trial. Of a run with several targets it is one of each, as a
    `sparkgpu.predict.several.FittedTargets`.

        >>> model = sparkgpu.load("reports/wine", "blend")
        >>> model.classes_
        array([0, 1, 2])
        >>> model.predict_proba(wine.head(4)).shape
        (4, 3)
        >>> sparkgpu.load("reports/elsewhere")
        Traceback (most recent call last):
        sparkgpu.core.errors.ConfigError: .../reports/elsewhere...
    """
    if not RunPaths(root=Path(run_dir).expanduser()).targets_index.is_file():
        return FittedModel(run_dir, model)
    from sparkgpu.predict.several import FittedTargets

    return FittedTargets(run_dir, model)
