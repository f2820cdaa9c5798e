"""Searches settings of a model: Optuna proposes them, one after the other, and the best trial stays.

The first setting is the default one, so the best is never worse than that on the validation rows. With folds
a setting is judged by all folds together. Everything follows from the seed, unless a time limit ends the
search. A setting is given up when its validation loss is behind the median of the others at the same step.
"""

from __future__ import annotations

import csv
import io
import shutil
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from sparkgpu.core.config.parameters import Parameters
from sparkgpu.core.config.registry.entries import Choice, Range
from sparkgpu.core.errors import TrialError
from sparkgpu.core.plan.trials import TrialSpec, search_space
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord, SearchRecord
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.score import metrics
from sparkgpu.score.predictions import LabelReader, trial_predictions
from sparkgpu.trials.engine import PrunedError, Watch

RunSetting = Callable[[TrialSpec, Parameters, float | None, Watch | None], FitRecord]

_FIRST_DRAWN = 10
"""So many settings are drawn at random before the sampler learns from them, at most half of all."""
_FEWEST_BEFORE_PRUNING = 4
_WARM_UP = 1 / 3
_LONGER = 1.15
_LARGEST_SHARE = 4
_STATES = {TrialState.COMPLETE: "done", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


class Searches:
    """The searches of one worker. A search belongs to a model and a seed, and covers all its folds."""

    def __init__(
        self, trials: Sequence[TrialSpec], paths: RunPaths, schema: TableSchema, run_setting: RunSetting
    ) -> None:
        self._trials = trials
        self._paths = paths
        self._schema = schema
        self._run_setting = run_setting
        self._metric = metrics.primary(schema.task, schema.metric)
        self._labels = LabelReader(paths, schema)
        self._found: dict[str, FitRecord] = {}

    def run(self, spec: TrialSpec, defaults: Parameters, until: float | None) -> FitRecord:
        """The record of the best setting for this trial; the first trial of a search carries it out.

        Raises `TrialError` if all failed.
        """
        if spec.name not in self._found:
            group = [one for one in self._trials if (one.model, one.seed) == (spec.model, spec.seed)]
            self._search(group, defaults, until)
        return self._found[spec.name]

    def _search(self, group: Sequence[TrialSpec], defaults: Parameters, until: float | None) -> None:
        self._remove(group)  # the settings of a search that was stopped; this one begins anew
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        spec = group[0]
        space = {key: _distribution(values) for key, values in search_space(defaults, spec.free).items()}
        study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(
                seed=spec.seed, n_startup_trials=max(1, min(_FIRST_DRAWN, spec.settings // 2))
            ),
            pruner=optuna.pruners.NopPruner(),
        )
        study.enqueue_trial({key: getattr(defaults, key) for key in space})
        records: dict[int, list[FitRecord]] = {}
        for number in range(spec.settings):
            asked = study.ask(space)
            ends = until
            if until is not None:
                share = min(spec.settings - number, _LARGEST_SHARE)
                ends = time.monotonic() + (until - time.monotonic()) / share
            try:
                records[number] = self._train(group, asked, defaults, ends)
                study.tell(asked, self._score(group, number))
            except PrunedError:
                study.tell(asked, state=TrialState.PRUNED)
            except Exception:
                traceback.print_exc()
                study.tell(asked, state=TrialState.FAIL)
            best = _best(study)
            self._remove(group, but=best.number if best else None)
            if number == 0 and best:
                steps = max(record.best_iteration for record in records[0])
                study.pruner = optuna.pruners.MedianPruner(
                    n_startup_trials=_FEWEST_BEFORE_PRUNING, n_warmup_steps=int(_WARM_UP * steps)
                )
            self._write_history(spec, study, space)
            if until is not None and time.monotonic() + _LONGER * max(map(_seconds, study.trials)) > until:
                break
        if best is None:
            raise TrialError(
                f"{spec.name}: none of {len(study.trials)} settings could be trained; see the lane's log."
            )
        self._keep(group, study, best, records[best.number])

    def _train(
        self, group: Sequence[TrialSpec], asked: optuna.Trial, defaults: Parameters, until: float | None
    ) -> list[FitRecord]:
        """Train one setting on each fold; the first of them tells its losses."""
        parameters = type(defaults).model_validate({**dict(defaults), **asked.params})

        def watch(step: int, loss: float) -> None:
            asked.report(-loss, step)
            if asked.should_prune():
                raise PrunedError(f"setting {asked.number} is behind the others after {step} steps")

        named = [fold.model_copy(update={"name": _name(fold, asked.number)}) for fold in group]
        return [
            self._run_setting(fold, parameters, until, watch if fold is named[0] else None) for fold in named
        ]

    def _score(self, group: Sequence[TrialSpec], number: int) -> float:
        """The primary metric on the validation rows of all folds; greater is better."""
        rows = [self._labels.of("valid", fold.fold) for fold in group]
        values = [
            trial_predictions(self._paths, self._schema, _name(fold, number), {"valid": own})["valid"]
            for fold, own in zip(group, rows, strict=True)
        ]
        weights = [own.weight_N for own in rows if own.weight_N is not None]
        found = metrics.primary_value(
            self._schema.task,
            np.concatenate([own.label_N for own in rows]),
            np.concatenate(values),
            np.concatenate(weights) if weights else None,
            asked=self._schema.metric,
        )
        return float("-inf") if found is None else metrics.score(self._metric, found)

    def _keep(
        self,
        group: Sequence[TrialSpec],
        study: optuna.Study,
        best: FrozenTrial,
        records: Sequence[FitRecord],
    ) -> None:
        """The best setting's trials become the trials of the search."""
        states = [trial.state for trial in study.trials]
        found = SearchRecord(
            asked=group[0].settings,
            tried=len(states),
            pruned=states.count(TrialState.PRUNED),
            failed=states.count(TrialState.FAIL),
            best=best.number,
            setting={key: _plain(value) for key, value in best.params.items()},
            metric=self._metric,
            default_score=study.trials[0].value if states[0] == TrialState.COMPLETE else None,
            best_score=best.value,
            search_s=round(sum(map(_seconds, study.trials)), 3),
        )
        for spec, record in zip(group, records, strict=True):
            self._paths.trial(_name(spec, best.number)).move_to(self._paths.trial(spec.name))
            self._found[spec.name] = record.model_copy(update={"trial": spec.name, "search": found})

    def _remove(self, group: Sequence[TrialSpec], *, but: int | None = None) -> None:
        for spec in group:
            for folder in self._paths.trial(spec.name).root.parent.glob(f"{spec.name}.*"):
                if but is None or folder.name != _name(spec, but):
                    shutil.rmtree(folder, ignore_errors=True)

    def _write_history(self, spec: TrialSpec, study: optuna.Study, keys: Iterable[str]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("setting", "state", self._metric, "seconds", *keys))
        for one in study.trials:
            # A setting that was given up has the last loss that it told as its value.
            found = one.value if one.state == TrialState.COMPLETE else None
            value = None if found is None else metrics.score(self._metric, found)
            cells = (str(_plain(one.params[key])) for key in keys)
            writer.writerow((one.number, _STATES[one.state], value, round(_seconds(one), 3), *cells))
        self._paths.trial(spec.name).root.mkdir(parents=True, exist_ok=True)
        write_text(self._paths.trial(spec.name).search, text.getvalue())


def _name(spec: TrialSpec, number: int) -> str:
    return f"{spec.name}.{number}"


def _best(study: optuna.Study) -> FrozenTrial | None:
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return max(done, key=lambda trial: trial.value or 0.0, default=None)


def _seconds(trial: FrozenTrial) -> float:
    return trial.duration.total_seconds() if trial.duration else 0.0


def _distribution(values: Range | Choice) -> BaseDistribution:
    if isinstance(values, Choice):
        with warnings.catch_warnings(action="ignore"):  # that tuples cannot go to a database
            return CategoricalDistribution(values.values)  # type: ignore[arg-type]
    if values.whole:
        return IntDistribution(int(values.low), int(values.high), log=values.log)
    return FloatDistribution(values.low, values.high, log=values.log)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return float(f"{value:.6g}") if isinstance(value, float) else value
