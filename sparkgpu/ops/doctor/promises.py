"""What docs/gpu.md promises of a GPU, read from the runs that were to show it.

A check that is ok proves its promise with what was measured. A failure refutes it; so does a warning, though
a run goes on without what was promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.devices import Device
from sparkgpu.core.host.gpus import Survey
from sparkgpu.core.host.telemetry import read_telemetry
from sparkgpu.core.host.torch_builds import dotted
from sparkgpu.core.plan.devices import ONE_SLICE
from sparkgpu.core.rundir.events import PROBING, WAITING_FOR_TREES
from sparkgpu.core.rundir.files import read_record
from sparkgpu.core.rundir.metrics_json import DoneTrial, read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.words import counted, gibibytes, listed, seconds_text
from sparkgpu.ops.doctor.check import Check, failure, not_tried, ok, warning

DEFECT = "send doctor.md with a bug report"
_GRAPH = "one CUDA graph each"


class Run:
    """A run in a folder, and why it did not finish if it did not."""

    def __init__(self, folder: RunPaths, why: str = "") -> None:
        self.paths = folder
        self._why = why or "it is not in metrics.json"
        found = read_results(self.paths) if self.paths.metrics.exists() else None
        self.trials = found.trials if found else ()
        self._phases_s = found.phases_s if found else {}

    def trial(self, model: str, lane: int = 0) -> DoneTrial:
        """The trial of `model` on a lane. Raises `TrialError` with the reason if it is not done."""
        found = next((one for one in self.trials if (one.model, one.lane) == (model, lane)), None)
        if isinstance(found, DoneTrial):
            return found
        raise TrialError(found.error if found else self._why)

    def phase_s(self, lane: int, branch: str, phase: str) -> float | None:
        """The seconds of a phase of a lane; None if it had none."""
        return self._phases_s.get(f"lane {lane} {branch}", {}).get(phase)


def own_card(run: Run, lane: int, device: Device) -> Check:
    """Whether all processes of a lane were on its card alone, as NVML lists them."""
    name = f"lane {lane} on its card alone"
    seen = [
        gpu.gpu_uuid
        for sample in read_telemetry(run.paths.telemetry)
        for gpu in sample.gpus
        if any(process.startswith(f"{lane}/") for process in gpu.gpu_processes)
    ]
    if not seen:
        return not_tried(name, "NVML named none of its processes, as in a container that numbers them anew")
    found = f"NVML saw its processes on {listed(sorted(set(seen)))}, {counted(len(seen), 'time')}"
    return ok(name, found) if set(seen) == {device.visible} else failure(name, found, DEFECT)


def by_h2o(run: Run, lane: int, found: Check) -> Check:
    """The check of a lane's trees, refuted if another engine had to take the place of H2O's."""
    if found.status != "ok" or (trial := run.trial("trees", lane)).engine == "h2o-xgboost":
        return found
    what = f"{found.found}; {next(iter(trial.notes), trial.engine)}"
    return warning(found.name, what, "set trees.engine to xgboost: no run probes then")


def first_use(run: Run, lanes: int) -> Check:
    """What H2O's first use of the cards took, with the driver's translation of its library."""
    name = "first use of H2O's library"
    took = [took_s for lane in range(lanes) if (took_s := run.phase_s(lane, "trees", PROBING)) is not None]
    if not took:
        return not_tried(
            name, "no run probed: H2O trained on such cards with this driver before, or none began"
        )
    return ok(name, f"{seconds_text(max(took))}, once for this driver and kind of card")


def turns(run: Run, devices: Sequence[Device]) -> Check:
    """Whether the network waited for the trees on cards that take one process at a time."""
    name = "trees and network in turns"
    alone = [lane for lane, device in enumerate(devices) if device.alone]
    if not alone:
        return not_tried(name, "no card here takes one process at a time (EXCLUSIVE_PROCESS)")
    waited = [run.phase_s(lane, "neural", WAITING_FOR_TREES) for lane in alone]
    if None in waited:
        return failure(name, "a network did not wait for the trees", DEFECT)
    return ok(name, f"the networks waited {listed([seconds_text(one or 0.0) for one in waited])}")


def planned_memory(runs: Iterable[Run]) -> Check:
    """Whether no network took more than was planned for it."""
    name = "planned memory"
    fits = [read_record(run.paths.trial(trial.name).fit, FitRecord) for run in runs for trial in run.trials
            if isinstance(trial, DoneTrial)]  # fmt: skip
    pairs = [
        (fit.memory_plan.peak_bytes, fit.peak_device_bytes)
        for fit in fits
        if fit.memory_plan and fit.peak_device_bytes
    ]
    if not pairs:
        return warning(name, "no network told its peak", DEFECT)
    found = "; ".join(f"{gibibytes(plan)} planned, {gibibytes(peak)} measured" for plan, peak in pairs)
    return ok(name, found) if all(peak <= plan for plan, peak in pairs) else failure(name, found, DEFECT)


def graph(name: str, with_graph: Run, plain: Run) -> Check:
    """Whether steps were captured and repeated, and what that gained."""
    try:
        own, other = with_graph.trial("neural"), plain.trial("neural")
    except TrialError as error:
        return failure(name, str(error), DEFECT)
    steps = str(own.device_proof.get("steps"))
    found = f"{steps}: {own.train_rows_per_s:,.0f} rows/s, without {other.train_rows_per_s:,.0f}"
    return ok(name, found) if steps == _GRAPH else warning(name, found, DEFECT)


def slices(devices: Sequence[Device], done: Mapping[str, Check]) -> Check:
    """Whether each slice was a lane of its own."""
    name = "each MIG slice a lane"
    lanes = [lane for lane, device in enumerate(devices) if device.is_slice]
    if not lanes:
        return not_tried(name, "no slice was examined")
    parts = ("trees on lane {}", "neural on lane {}", "lane {} on its card alone")
    own = [done[part.format(lane)] for lane, part in product(lanes, parts)]
    wrong = [check.name for check in own if check.status not in ("ok", "not tried")]
    found = f"{counted(len(lanes), 'slice')} trained; {ONE_SLICE}"
    return failure(name, f"see {listed(wrong)}", DEFECT) if wrong else ok(name, found)


def cards(devices: Sequence[Device], survey: Survey, done: Mapping[str, Check]) -> Iterable[Check]:
    """A line of the table of cards for each kind of card: whether torch and H2O trained on all of them."""
    capability = {gpu.uuid: gpu.compute_capability for gpu in survey.gpus}
    kinds: dict[str, list[int]] = {}
    for lane, device in enumerate(devices):
        code = capability.get(device.visible)
        kinds.setdefault(f"{device.title} ({dotted(code)})", []).append(lane)
    for kind, lanes in kinds.items():
        name = f"{kind}, driver {survey.driver or 'unknown'}"
        answers = {
            what: {done[f"{model} on lane {lane}"].status for lane in lanes}
            for model, what in (("neural", "torch"), ("trees", "H2O XGBoost"))
        }
        found = "; ".join(
            f"{what} {'trains' if own == {'ok'} else 'does not train'}" for what, own in answers.items()
        )
        every = set().union(*answers.values())
        fix = "see the lanes of these cards"
        yield (
            ok(name, found) if every == {"ok"}
            else failure(name, found, fix) if "failure" in every
            else warning(name, found, fix)
        )  # fmt: skip
