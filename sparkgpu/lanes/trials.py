"""Runs a branch's trials one after the other; each writes its record or the reason of its failure.

A trial is done when its saved model was loaded again and predicted as the trained one did.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable

from sparkgpu.engines.saved_model import check_saved_model
from sparkgpu.errors import described
from sparkgpu.lanes.calibrate import calibrate
from sparkgpu.plan.plan import Plan
from sparkgpu.plan.trial_spec import TrialSpec
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.files import write_json, write_text
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.schema import read_schema


def run_trials(
    plan: Plan,
    trials: Iterable[TrialSpec],
    paths: RunPaths,
    events: EventWriter,
    run_trial: Callable[[TrialSpec], FitRecord],
    fits: Callable[[TrialSpec], bool] = lambda spec: True,
    *,
    calibrates: bool = False,
) -> bool:
    """Run the trials that are not done yet, also after a failed one; those that do not fit are left out.

    With `calibrates`, probabilities are scaled by a temperature. Returns whether none failed.
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
            schema = read_schema(paths)
            saved = record.saved_model
            if saved is None:
                with events.phase("checking the saved model", spec.name):
                    saved = check_saved_model(record, paths, schema)
            if calibrates:
                record = calibrate(spec, record, paths, schema)
            devices = plan.devices(spec) if record.on_gpu else ("cpu",) * len(spec.gang)
            update = {
                "saved_model": saved, "devices": devices, "began_at": began_at, "ended_at": time.time(),
            }  # fmt: skip
            write_json(trial.fit, record.model_copy(update=update))
            write_text(trial.done, "")
            events.trial_done(spec.name)
        except Exception as error:
            all_done = False
            traceback.print_exc()
            write_json(trial.error, described(error))
            events.trial_failed(spec.name, described(error)["message"])
    return all_done
