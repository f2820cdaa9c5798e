"""The models of a run that are asked about changed rows, until the time is over.

Nothing begins that would not be done in time. N rows, G classes or 1.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.errors import TrialError, described
from sparkgpu.core.host.interpreter import importing
from sparkgpu.core.rundir.metrics_json import DoneTrial, Results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import Rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.predict.explain.contributions import Contributions, exact
from sparkgpu.predict.explain.sample import Sample
from sparkgpu.score.calibration import scaled
from sparkgpu.score.metrics import primary_value
from sparkgpu.score.rows import FloatArray
from sparkgpu.trials.engine import Model, load_fitted

_FIRST_ROWS = 100


class AskedModel:
    """A model of the run through one of its trials, its metric `value` on the sample, and its speed."""

    def __init__(
        self, name: str, trial: DoneTrial, model: Model, schema: TableSchema, sample: Sample
    ) -> None:
        self.name, self.trial = name, trial
        self._model, self._schema = model, schema
        self.predict(sample.first(_FIRST_ROWS).rows)  # libraries set themselves up in their first call
        start = time.perf_counter()
        values = self.predict(sample.rows)
        self.row_s = (time.perf_counter() - start) / len(sample)
        self.value = self.metric(sample, values)

    def predict(self, rows: Rows) -> FloatArray:
        """Values (N,) or probabilities (N, G), as the run predicts."""
        values = np.asarray(self._model.predict(rows), np.float64)
        if self.trial.temperature is not None:
            values = scaled(values, self.trial.temperature)
        return values / values.sum(axis=1, keepdims=True) if self._schema.classes else values

    @property
    def has_contributions(self) -> bool:
        """Whether its library knows what each feature adds."""
        return getattr(self._model, "contributions", None) is not None

    def contributions(self, rows: Rows, columns: Sequence[str]) -> Contributions:
        """What the user's `columns` added; raises as `exact` does."""
        return exact(self._schema, columns, [(1.0, self.trial.temperature, self._model)], rows)

    def metric(self, sample: Sample, values: FloatArray) -> float | None:
        """The primary metric of these predictions of the sample; None if it has one class only."""
        task, asked = self._schema.task, self._schema.metric
        return primary_value(task, sample.rows.label_N, values, sample.weight_N, asked=asked)


@dataclass(kw_only=True)
class Models:
    """The models that answer, all about the same `sample`, until `until` by `time.monotonic`.

    `notes` are for the report.
    """

    models: list[AskedModel]
    schema: TableSchema
    sample: Sample
    seed: int
    until: float
    notes: list[str]

    @property
    def row_s(self) -> float:
        """The seconds for a row in all models."""
        return sum(one.row_s for one in self.models)


def load_models(
    paths: RunPaths, results: Results, schema: TableSchema, sample: Sample, by: float
) -> tuple[list[AskedModel], list[str]]:
    """The first finished trial of each model that is no blend, and what to say about the others."""
    loaded, notes, refused = [], [], {}
    for model in results.models:
        done = results.done(model.name)
        if not done or model.weights is not None:
            continue
        first = done[0]
        if len(done) > 1:
            notes.append(f"{model.name} has {len(done)} finished trials; the first, {first.name}, is shown.")
        try:
            if ENGINES.find(first.engine).in_context:
                raise TrialError("it would read all of its context again for each column")
            _check_time(by)
            with importing():
                fitted = load_fitted(first.engine, paths.trial(first.name).root, schema)
            asked = AskedModel(model.name, first, fitted, schema, sample)
            _check_time(by)
        except Exception as error:  # whatever is wrong with one file, the others can be asked
            refused[model.name] = described(error)["message"]
        else:
            loaded.append(asked)
    notes += [f"{name} is left out: {reason.rstrip('.')}." for name, reason in refused.items()]
    return loaded, notes


def _check_time(by: float) -> None:
    if time.monotonic() > by:
        raise TrialError("the time was over")
