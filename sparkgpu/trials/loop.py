"""Runs a branch's trials one after the other, within the time that there is for each.

A trial is done when its saved model was loaded again and predicted as the trained one did.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from sparkgpu.core.config.parameters import Parameters
from sparkgpu.core.errors import described
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.trials import TrialSpec, sharing_time
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.predictions import read_predictions, write_predictions
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.score.calibration import scaled, temperature
from sparkgpu.score.predictions import LabelReader, align
from sparkgpu.trials.engine import Watch
from sparkgpu.trials.saved_model import check_saved_model

if TYPE_CHECKING:
    from sparkgpu.trials.search import Searches


def run_trials(
    plan: Plan,
    trials: Iterable[TrialSpec],
    paths: RunPaths,
    events: EventWriter,
    run_trial: Callable[[TrialSpec], FitRecord],
    fits: Callable[[TrialSpec], bool] = lambda spec: True,
    *,
    calibrates: Callable[[str], bool] = lambda task: False,
) -> bool:
    """Run the trials that are not done yet, also after a failed one; those that do not fit are left out.

    Probabilities of a task that `calibrates` are scaled by a temperature. Returns whether none failed.
    """
    all_done = True
    for spec in trials:
        trial = paths.trial(spec.name)
        if trial.done.exists():  # by the run that this one resumes
            events.trial_done(spec.name)
            continue
        if not fits(spec):
            trial.root.mkdir(parents=True, exist_ok=True)
            write_text(trial.left_out, "")
            events.trial_left(spec.name)
            continue
        trial.left_out.unlink(missing_ok=True)  # by the run that this one resumes
        began_at = time.time()
        try:
            record = run_trial(spec)
            devices = plan.devices(spec) if record.on_gpu else ("cpu",) * len(spec.gang)
            update = {"trial": spec.own_name, "devices": devices, "began_at": began_at}
            for own in tables_of(spec, paths):
                _settle(record.model_copy(update=update), spec, own, events, calibrates)
            if not trial.done.exists():  # the network of several targets
                trial.finish()
            events.trial_done(spec.name)
        except Exception as error:
            all_done = False
            traceback.print_exc()
            write_json(trial.error, described(error))
            events.trial_failed(spec.name, described(error)["message"])
    return all_done


def tables_of(spec: TrialSpec, paths: RunPaths) -> list[RunPaths]:
    """The run directories that a trial's predictions belong to: of several targets, that of each."""
    if spec.target is not None:
        return [paths.target(spec.target)]
    return [paths.target(folder) for folder in read_schema(paths).targets] or [paths]


def _settle(
    record: FitRecord,
    spec: TrialSpec,
    paths: RunPaths,
    events: EventWriter,
    calibrates: Callable[[str], bool],
) -> None:
    """Check the saved model of one target, scale its probabilities, and write its record."""
    schema, saved = read_schema(paths), record.saved_model
    if saved is None:
        with events.phase("checking the saved model", spec.name):
            saved = check_saved_model(record, paths, schema)
    by = calibrate(spec, paths, schema) if calibrates(schema.task) else record.temperature
    trial = paths.trial(spec.own_name)
    update = {"saved_model": saved, "temperature": by, "ended_at": time.time()}
    write_json(trial.fit, record.model_copy(update=update))
    trial.finish()


def calibrate(spec: TrialSpec, paths: RunPaths, schema: TableSchema) -> float:
    """Write the trial's predictions again, at the temperature that is returned."""
    file = paths.trial(spec.own_name).predictions
    found = read_predictions(file, schema)
    valid = LabelReader(paths, schema).of("valid", spec.fold)
    valid_NC = align(valid.row_id_N, *found["valid"])
    by = temperature(schema.task, valid.label_N, valid_NC, valid.weight_N)
    write_predictions(
        file, {split: (row_id_N, scaled(values, by)) for split, (row_id_N, values) in found.items()}, schema
    )
    return by


_SEARCH_SHARE = 3
"""A search gets so many times the time of a single trial."""
_ENOUGH = 0.6
"""A further seed begins if so much is left of the time that the one before it took; it then learns faster."""


class TimedTrials:
    """Trains trials that run one after the other, each in its time, or searches their settings.

    `train` is told when it has to be done, and in a search whom to tell its losses.
    """

    def __init__(
        self,
        trials: Sequence[TrialSpec],
        paths: RunPaths,
        schema: TableSchema,
        parameters_of: Callable[[TrialSpec], Parameters],
        ends: float | None,
        train: Callable[[TrialSpec, Parameters, float | None, Watch | None], FitRecord],
    ) -> None:
        self._trials = trials
        self._paths = paths
        self._schema = schema
        self._parameters_of = parameters_of
        self._train = train
        self._shares = TimeShares(trials, ends)
        self.fits = self._shares.fits

    def run(self, spec: TrialSpec) -> FitRecord:
        until, parameters = self._shares.begin(spec), self._parameters_of(spec)
        if spec.settings:
            record = self._searches.run(spec, parameters, until)
        else:
            record = self._train(spec, parameters, until, None)
        self._shares.end(spec)
        return record

    @cached_property
    def _searches(self) -> Searches:
        from sparkgpu.trials.search import Searches  # loads Optuna

        return Searches(self._trials, self._paths, self._schema, self._train)


class TimeShares:
    """When each of a worker's `trials` has to be done; `ends` is the end of all of them (None: no limit).

    The first trials of all models share it, and the first one of each runs in any case. The others take what
    is left of it, as long as there is enough.
    """

    def __init__(
        self, trials: Sequence[TrialSpec], ends: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ends = ends
        self._clock = clock
        self._shares = {spec.name: _SEARCH_SHARE if spec.settings else 1 for spec in sharing_time(trials)}
        self._begun: set[tuple[str | None, str]] = set()
        self._took_s: dict[tuple[str | None, str], float] = {}
        self._began = 0.0

    def fits(self, spec: TrialSpec) -> bool:
        if self._ends is None or _learner(spec) not in self._begun:
            return True
        took_s = self._took_s.get(_learner(spec))
        return took_s is not None and self._clock() + _ENOUGH * took_s <= self._ends

    def begin(self, spec: TrialSpec) -> float | None:
        """The trial begins; returns when it has to be done, by `time.monotonic`."""
        self._began = self._clock()
        self._begun.add(_learner(spec))
        if self._ends is None or spec.name not in self._shares:
            return self._ends
        own = self._shares[spec.name]
        names = list(self._shares)
        left = sum(self._shares[name] for name in names[names.index(spec.name) :])
        return self._began + (self._ends - self._began) * own / left

    def end(self, spec: TrialSpec) -> None:
        self._took_s[_learner(spec)] = self._clock() - self._began


def _learner(spec: TrialSpec) -> tuple[str | None, str]:
    return spec.target, spec.model
