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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna

from sparkgpu.core.config.parameters import NeuralParameters, TreesParameters
from sparkgpu.core.config.registry.entries import Choice, SearchSpace
from sparkgpu.core.errors import TrialError
from sparkgpu.core.plan.trials import TrialSpec, search_space
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord, SearchRecord
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.score import metrics
from sparkgpu.score.predictions import LabelReader, trial_predictions
from sparkgpu.trials.engine import PrunedError

Parameters = TreesParameters | NeuralParameters
Watch = Callable[[int, float], None]
RunSetting = Callable[[TrialSpec, Parameters, float | None, Watch | None], FitRecord]

_FIRST_DRAWN = 10
"""So many settings are drawn at random before the sampler learns from them, at most half of all."""
_FEWEST_BEFORE_PRUNING = 4
_WARM_UP = 1 / 3
_LONGER = 1.15
_LARGEST_SHARE = 4


@dataclass(kw_only=True)
class _Tried:
    """One setting: what came of it, and the records of its trials."""

    number: int
    setting: Mapping[str, Any]
    state: str
    score: float | None
    seconds: float
    records: tuple[FitRecord, ...] = ()


class Searches:
    """The searches of one worker. A search belongs to a model and a seed, and covers all its folds."""

    def __init__(
        self,
        trials: Sequence[TrialSpec],
        paths: RunPaths,
        schema: TableSchema,
        run_setting: RunSetting,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._trials = trials
        self._paths = paths
        self._schema = schema
        self._run_setting = run_setting
        self._clock = clock
        self._labels = LabelReader(paths, schema)
        self._found: dict[str, FitRecord] = {}

    def run(self, spec: TrialSpec, defaults: Parameters, until: float | None) -> FitRecord:
        """The record of the best setting for this trial; the first trial of a search carries it out.

        Raises the last setting's error if all failed.
        """
        if spec.name not in self._found:
            group = [one for one in self._trials if (one.model, one.seed) == (spec.model, spec.seed)]
            self._search(group, defaults, until)
        return self._found[spec.name]

    def _search(self, group: Sequence[TrialSpec], defaults: Parameters, until: float | None) -> None:
        self._remove_left_over(group)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        spec = group[0]
        space = search_space(defaults, spec.free)
        study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(
                seed=spec.seed, n_startup_trials=max(1, min(_FIRST_DRAWN, spec.settings // 2))
            ),
            pruner=optuna.pruners.NopPruner(),
        )
        study.enqueue_trial({key: _drawn(getattr(defaults, key), space[key]) for key in space})
        tried: list[_Tried] = []
        best: _Tried | None = None
        for number in range(spec.settings):
            took_s = max((one.seconds for one in tried), default=0.0)
            if until is not None and tried and self._clock() + _LONGER * took_s > until:
                break
            one = self._try(number, group, defaults, space, study, self._until(until, spec.settings - number))
            tried.append(one)
            if one.score is not None and (best is None or best.score is None or one.score > best.score):
                if best is not None:
                    self._remove(group, best.number)
                best = one
            else:
                self._remove(group, number)
            if number == 0 and one.records:
                steps = max(record.best_iteration for record in one.records)
                study.pruner = optuna.pruners.MedianPruner(
                    n_startup_trials=_FEWEST_BEFORE_PRUNING, n_warmup_steps=int(_WARM_UP * steps)
                )
            self._write_history(spec, tried, space)
        if best is None:
            raise TrialError(
                f"{spec.name}: none of {len(tried)} settings could be trained; see the lane's log."
            )
        self._keep(group, best, tried)

    def _until(self, until: float | None, left: int) -> float | None:
        if until is None:
            return None
        now = self._clock()
        return now + (until - now) / min(left, _LARGEST_SHARE)

    def _try(
        self,
        number: int,
        group: Sequence[TrialSpec],
        defaults: Parameters,
        space: SearchSpace,
        study: optuna.Study,
        until: float | None,
    ) -> _Tried:
        asked = study.ask()
        setting = {key: _suggested(asked, key, space[key]) for key in space}
        parameters = type(defaults).model_validate({**dict(defaults), **setting})
        begin = self._clock()

        def tried(state: str, score: float | None = None, records: tuple[FitRecord, ...] = ()) -> _Tried:
            return _Tried(
                number=number, setting=setting, state=state, score=score, seconds=self._clock() - begin,
                records=records,
            )  # fmt: skip

        def watch(step: int, loss: float) -> None:
            asked.report(-loss, step)
            if asked.should_prune():
                raise PrunedError(f"setting {number} is behind the others after {step} steps")

        try:
            records = tuple(
                self._run_setting(
                    fold.model_copy(update={"name": _name(fold, number)}), parameters, until,
                    watch if fold is group[0] else None,
                )
                for fold in group
            )  # fmt: skip
            score = self._score(group, number)
        except PrunedError:
            study.tell(asked, state=optuna.trial.TrialState.PRUNED)
            return tried("pruned")
        except Exception:
            traceback.print_exc()
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
            return tried("failed")
        study.tell(asked, score)
        return tried("done", score, records)

    def _score(self, group: Sequence[TrialSpec], number: int) -> float:
        """The primary metric on the validation rows of all folds; greater is better."""
        rows = [self._labels.of("valid", fold.fold) for fold in group]
        values = [
            trial_predictions(self._paths, self._schema, _name(fold, number), {"valid": own})["valid"]
            for fold, own in zip(group, rows, strict=True)
        ]
        weights = [own.weight_N for own in rows if own.weight_N is not None]
        metric = metrics.primary(self._schema.task)
        found = metrics.compute(
            self._schema.task,
            np.concatenate([own.label_N for own in rows]),
            np.concatenate(values),
            np.concatenate(weights) if weights else None,
        )[metric]
        return float("-inf") if found is None else metrics.score(metric, found)

    def _keep(self, group: Sequence[TrialSpec], best: _Tried, tried: Sequence[_Tried]) -> None:
        """The best setting's trials become the trials of the search."""
        found = SearchRecord(
            asked=group[0].settings,
            tried=len(tried),
            pruned=sum(one.state == "pruned" for one in tried),
            failed=sum(one.state == "failed" for one in tried),
            best=best.number,
            setting={key: _plain(value) for key, value in best.setting.items()},
            metric=metrics.primary(self._schema.task),
            default_score=tried[0].score,
            best_score=best.score,
            search_s=round(sum(one.seconds for one in tried), 3),
        )
        for spec, record in zip(group, best.records, strict=True):
            self._paths.trial(_name(spec, best.number)).move_to(self._paths.trial(spec.name))
            self._found[spec.name] = record.model_copy(update={"trial": spec.name, "search": found})

    def _remove(self, group: Sequence[TrialSpec], number: int) -> None:
        for spec in group:
            shutil.rmtree(self._paths.trial(_name(spec, number)).root, ignore_errors=True)

    def _remove_left_over(self, group: Sequence[TrialSpec]) -> None:
        """The settings of a search that was stopped; this one begins anew."""
        for spec in group:
            for folder in self._paths.trial(spec.name).root.parent.glob(f"{spec.name}.*"):
                shutil.rmtree(folder, ignore_errors=True)

    def _write_history(self, spec: TrialSpec, tried: Sequence[_Tried], space: SearchSpace) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("setting", "state", metrics.primary(self._schema.task), "seconds", *space))
        metric = metrics.primary(self._schema.task)
        for one in tried:
            value = None if one.score is None else metrics.score(metric, one.score)
            cells = (str(_plain(one.setting[key])) for key in space)
            writer.writerow((one.number, one.state, value, round(one.seconds, 3), *cells))
        self._paths.trial(spec.name).root.mkdir(parents=True, exist_ok=True)
        write_text(self._paths.trial(spec.name).search, text.getvalue())


def _name(spec: TrialSpec, number: int) -> str:
    return f"{spec.name}.{number}"


def _drawn(value: Any, values: Any) -> Any:
    """A default value in the form in which Optuna holds it."""
    if isinstance(values, Choice):
        return values.values.index(value)
    return int(value) if values.whole else float(value)


def _suggested(asked: optuna.Trial, key: str, values: Any) -> Any:
    if isinstance(values, Choice):  # Optuna holds no lists, so it chooses their place
        return values.values[asked.suggest_categorical(key, list(range(len(values.values))))]
    if values.whole:
        return asked.suggest_int(key, int(values.low), int(values.high), log=values.log)
    return asked.suggest_float(key, values.low, values.high, log=values.log)


def _plain(value: Any) -> Any:
    return (
        list(value)
        if isinstance(value, tuple)
        else float(f"{value:.6g}")
        if isinstance(value, float)
        else value
    )
