"""scikit-learn's door: trees and networks as its estimators, for the engines that need no JVM.

They train as a run's trials do (`sparkgpu.runs.frame_fit`) and predict as `sparkgpu.load` does. A fitted
estimator holds the files of its model, so it can be copied and pickled. N rows, F columns, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from sparkgpu.core.config import toml
from sparkgpu.core.config.keys import dotted
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.intervals import Conformal
from sparkgpu.core.table.schema import Task
from sparkgpu.predict.explain.contributions import exact
from sparkgpu.predict.frames import as_reader
from sparkgpu.prepare.encoding import Encoder
from sparkgpu.runs.frame_fit import fit_frame
from sparkgpu.score import conformal
from sparkgpu.trials.engine import Model

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NeuralClassifier", "NeuralRegressor", "TreesClassifier", "TreesRegressor"]


@dataclass(kw_only=True, eq=False, repr=False)
class _Estimator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """What the four share. `_choice` is the setting that names the engine or network, a key of `_branch`.

    Each class is a dataclass: its __init__ names all its settings, where scikit-learn looks for them.
    """

    _branch: ClassVar[Any]
    _choice: ClassVar[str]

    preset: str = "fast"
    config: Mapping[str, Any] | None = None
    valid_size: float = 0.15
    threads: int | None = None
    random_state: Any = None

    @abstractmethod
    def _engine(self) -> str:
        """The name of the engine."""

    def _column(self, y: Any) -> NDArray[Any]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        found: NDArray[Any] = column_or_1d(y, warn=True)
        return found

    def _fit(
        self, X: Any, label_N: NDArray[Any], task: Task, classes: Sequence[str], sample_weight: Any
    ) -> None:
        table = self._table(X, fitting=True)
        check_consistent_length(label_N, np.empty(table.num_rows))
        if not isinstance(self.valid_size, float | int) or not 0 < self.valid_size < 1:
            raise ValueError(f"valid_size={self.valid_size!r}: give a share of the rows between 0 and 1.")
        if table.num_rows < 2:
            raise ValueError(f"X has n_samples={table.num_rows}; an estimator needs two or more.")
        weight_N = None if sample_weight is None else _check_sample_weight(sample_weight, label_N)
        random = check_random_state(self.random_state)
        choice = {f"{self._branch}.{self._choice}": getattr(self, self._choice)}
        self._trained = fit_frame(
            table,
            label_N,
            weight_N,
            source=type(X).__name__,
            task=task,
            classes=classes,
            branch=self._branch,
            engine=self._engine(),
            config=toml.load(options={**choice, "preset": self.preset, **dotted(self.config or {})}),
            valid_size=self.valid_size,
            threads=self.threads,
            seed=int(random.randint(2**31 - 1)),
        )
        self._columns = tuple(table.column_names)
        self._model: Model | None = self._trained.loaded()
        self.n_iter_ = self._trained.best_iteration

    def _values(self, X: Any) -> NDArray[np.float64]:
        model = self._fitted()
        table = self._table(X, fitting=False)
        encoder = Encoder(self._trained.schema)
        encoder.check(table.column_names, "X")
        return np.asarray(model.predict(encoder.rows(table)), dtype=np.float64)

    def _fitted(self) -> Model:
        check_is_fitted(self, "n_iter_")
        if self._model is None:  # it was copied or unpickled
            self._model = self._trained.loaded()
        return self._model

    def _conformal(self) -> Conformal:
        check_is_fitted(self, "n_iter_")
        if self._trained.sure is None:
            raise ConfigError(
                'it was fitted without intervals; give config={"intervals": 0.9} and fit again.'
            )
        return self._trained.sure

    def _table(self, X: Any, *, fitting: bool) -> pa.Table:
        """X as a table; an array's columns are ``x0``, ``x1`` and so on."""
        if hasattr(X, "columns") or hasattr(X, "__arrow_c_stream__"):
            table = as_reader(X).read_all().combine_chunks()
            if table.num_rows and table.num_columns:
                # Names and number of features as scikit-learn keeps and checks them.
                validate_data(self, X, reset=fitting, skip_check_array=True)
                return table
            X = np.empty((table.num_rows, table.num_columns))
        values_NF = validate_data(self, X, reset=fitting, ensure_all_finite="allow-nan", dtype="numeric")
        return pa.table({f"x{place}": pa.array(values_NF[:, place]) for place in range(values_NF.shape[1])})

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_model": None} if "_model" in state else state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.non_deterministic = False
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class _Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    class_weight: str | Mapping[Any, float] | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on frames or arrays (N, F) and classes (N,). Raises ValueError for what cannot be learned."""
        y = self._column(y)
        check_classification_targets(y)
        self.classes_, code_N = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_.tolist()}; a classifier needs two or more.")
        task: Task = "binary" if len(self.classes_) == 2 else "multiclass"
        if self.class_weight is not None:
            own_N = compute_sample_weight(self.class_weight, y)
            sample_weight = own_N * (1.0 if sample_weight is None else _check_sample_weight(sample_weight, y))
        self._fit(X, code_N, task, [str(place) for place in range(len(self.classes_))], sample_weight)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities (N, C) in the order of `classes_`."""
        return self._values(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable classes (N,)."""
        values = self._values(X)
        found: NDArray[Any] = self.classes_[values.argmax(axis=1)]
        return found

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Which classes (N, C) the set of each row holds; needs ``config={"intervals": 0.9}``."""
        return conformal.sets(self._conformal(), self._values(X))


@dataclass(kw_only=True, eq=False, repr=False)
class _Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on frames or arrays (N, F) and numbers (N,). Raises ValueError for what cannot be learned."""
        y = check_array(self._column(y), ensure_2d=False, dtype=np.float64, input_name="y")
        self._fit(X, y, "regression", (), sample_weight)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Values (N,)."""
        return self._values(X)

    def predict_interval(self, X: Any) -> NDArray[np.float64]:
        """Lower and upper ends (N, 2); needs ``config={"intervals": 0.9}``."""
        return conformal.intervals(self._conformal(), self._values(X))


@dataclass(kw_only=True, eq=False, repr=False)
class _Trees(_Estimator):
    _branch = "trees"
    _choice = "engine"

    engine: str = "lightgbm"

    def _engine(self) -> str:
        try:
            found = ENGINES.find(self.engine, lambda entry: entry.branch == "trees" and not entry.needs_h2o)
        except ValueError as error:
            raise ConfigError(f"engine={self.engine!r}: {error}") from None
        return found.name

    def explain(self, X: Any) -> pd.DataFrame:
        """What each column of X added to each row's margin, by the library's own TreeSHAP.

        A line is a row and a class (with two classes only the second), with its `base`, a
        ``contribution_<column>`` of each column, and `prediction`, their sum.
        """
        model, table = self._fitted(), self._table(X, fitting=False)
        schema, encoder = self._trained.schema, Encoder(self._trained.schema)
        encoder.check(table.column_names, "X")
        added = exact(schema, self._columns, [(1.0, None, model)], encoder.rows(table))
        found: pd.DataFrame = pa.table(added.table(schema, self._columns, 0)).to_pandas()
        if schema.classes:
            found["class"] = self.classes_[found["class"].astype(int)]
        return found

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The shares (F,) of the columns of X in the library's importance: the gain of LightGBM and XGBoost.

        The parts of a timestamp are added up, and what two columns share is divided. Raises `AttributeError`
        if the engine has none.
        """
        importance = getattr(self._fitted(), "importance", None)
        if importance is None:
            raise AttributeError(f"engine={self.engine!r} keeps no importances; use permutation_importance.")
        feature_of = {feature.name: feature for feature in self._trained.schema.features}
        share_of = dict.fromkeys(self._columns, 0.0)
        for name, value in importance().items():
            owners = feature_of[name].pair or (name,)
            for owner in owners:
                share_of[feature_of[owner].source] += float(value) / len(owners)
        share_F = np.array(list(share_of.values()))
        return share_F / (share_F.sum() or 1.0)


@dataclass(kw_only=True, eq=False, repr=False)
class _Neural(_Estimator):
    _branch = "neural"
    _choice = "architecture"

    architecture: str = "tabm"

    def _engine(self) -> str:
        return "torch"

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        raise AttributeError(
            "networks keep no feature_importances_; use sklearn.inspection.permutation_importance."
        )


@dataclass(kw_only=True, eq=False, repr=False)
class TreesClassifier(_Classifier, _Trees):
    """Classifies by gradient-boosted trees. `class_weight` is as in scikit-learn.

    `engine` is ``"lightgbm"`` or ``"xgboost"``, which must be installed. `config` holds further keys of a
    run (``{"trees.ntrees": 200}``), `valid_size` is the share of rows for early stopping. `threads` None
    means all cores, or one for fewer than 10,000 rows.

        >>> from sklearn.datasets import load_breast_cancer
        >>> from sparkgpu.sklearn import TreesClassifier
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = TreesClassifier(engine="xgboost", random_state=7).fit(X[:400], y[:400])
        >>> bool(model.score(X[400:], y[400:]) > 0.9)
        True
    """


@dataclass(kw_only=True, eq=False, repr=False)
class TreesRegressor(_Regressor, _Trees):
    """Predicts numbers by gradient-boosted trees.

    `engine` is ``"lightgbm"`` or ``"xgboost"``, which must be installed. `config` holds further keys of a
    run (``{"trees.ntrees": 200}``), `valid_size` is the share of rows for early stopping. `threads` None
    means all cores, or one for fewer than 10,000 rows.

        >>> from sklearn.datasets import load_diabetes
        >>> from sparkgpu.sklearn import TreesRegressor
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = TreesRegressor(config={"intervals": 0.9}, random_state=7).fit(X, y)
        >>> model.predict_interval(X.head(2)).shape
        (2, 2)
    """


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralClassifier(_Classifier, _Neural):
    """Classifies by a PyTorch network on the CPU. `class_weight` is as in scikit-learn.

    `architecture` is ``"tabm"``, ``"realmlp"``, ``"mlp"`` or ``"resnet"``. `config` holds further keys of a
    run (``{"neural.epochs": 20}``), `valid_size` is the share of rows for early stopping. `threads` None
    means all cores, or one for fewer than 10,000 rows. It sets torch's threads and seed for the process.

        >>> from sklearn.datasets import load_wine
        >>> from sparkgpu.sklearn import NeuralClassifier
        >>> X, y = load_wine(return_X_y=True, as_frame=True)
        >>> model = NeuralClassifier(config={"neural.epochs": 20}, random_state=7).fit(X, y)
        >>> model.predict_proba(X.head(2)).shape
        (2, 3)
    """


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralRegressor(_Regressor, _Neural):
    """Predicts numbers by a PyTorch network on the CPU.

    `architecture` is ``"tabm"``, ``"realmlp"``, ``"mlp"`` or ``"resnet"``. `config` holds further keys of a
    run (``{"neural.epochs": 20}``), `valid_size` is the share of rows for early stopping. `threads` None
    means all cores, or one for fewer than 10,000 rows. It sets torch's threads and seed for the process.

        >>> from sklearn.datasets import load_diabetes
        >>> from sparkgpu.sklearn import NeuralRegressor
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = NeuralRegressor(architecture="mlp", config={"neural.epochs": 5}).fit(X, y)
        >>> model.predict(X.head(2)).shape
        (2,)
    """
