"""What the telemetry of a run says about its GPUs: whose processes NVML saw there, and which of them idled.

Limits: samples are a second apart, so a shorter trial may have none. Executors of a Spark cluster and ranks
on several machines are not watched from here, and nothing is said about them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from sparkgpu.config.registry.engines import BRANCHES
from sparkgpu.host.telemetry import GpuSample, Sample, idle_percent, read_telemetry
from sparkgpu.plan.plan import Plan
from sparkgpu.plan.trial_spec import TrialSpec
from sparkgpu.rundir.events import TRAINING, Event, EventReader
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.words import listed


def gpu_samples(paths: RunPaths, plan: Plan) -> list[Sample]:
    """The samples of a run whose GPUs are on this machine, else none."""
    here = plan.master is None and any(lane.cuda_visible_devices for lane in plan.lanes)
    return read_telemetry(paths.telemetry) if here else []


def nvml_proof(samples: Sequence[Sample], plan: Plan, spec: TrialSpec, fit: FitRecord) -> dict[str, object]:
    """For `device_proof`: the processes of a trial that NVML saw on its GPUs while it ran.

    Empty for a trial on the CPU, and where nothing watched its GPUs.
    """
    uuids = {plan.lanes[lane].cuda_visible_devices for lane in spec.gang}
    watched = any(gpu.gpu_uuid in uuids for sample in samples for gpu in sample.gpus)
    if not (fit.on_gpu and watched and spec.nodes == 1) or fit.began_at is None or fit.ended_at is None:
        return {}
    during = [sample for sample in samples if fit.began_at <= sample.at <= fit.ended_at]
    looks = [gpu for sample in during for gpu in sample.gpus if gpu.gpu_uuid in uuids]
    seen = [(gpu.gpu_uuid, pid) for gpu in looks for pid in _own(gpu, f"{spec.lane}/{spec.branch}")]
    pids, places = sorted({pid for _, pid in seen}), sorted({uuid for uuid, _ in seen})
    if seen:
        count = sum(bool(_own(gpu, f"{spec.lane}/{spec.branch}")) for gpu in looks)
        noun = "process" if len(pids) == 1 else "processes"
        said = f"{noun} {listed(pids)} on {listed(places)} in {count} of {len(looks)} samples"
    elif not looks:
        said = "no sample while it ran"
    elif all(gpu.gpu_other_processes is None for gpu in looks):
        said = "the driver does not list the processes"
    elif any(gpu.gpu_other_processes for gpu in looks):
        said = "only processes with other numbers; a container may hide those of the run"
    else:
        said = f"no process in {len(looks)} samples"
    return {"nvml": said, "nvml_gpus": places, "nvml_pids": pids}


def _own(gpu: GpuSample, owner: str) -> list[int]:
    named = (name.rpartition(":") for name in gpu.gpu_processes)
    return [int(pid) for found, _, pid in named if found == owner]


def idle_devices(
    paths: RunPaths, plan: Plan, samples: Sequence[Sample], on_gpu: Collection[str]
) -> list[str]:
    """A sentence if GPUs idled while the trials `on_gpu` trained on them."""
    if not samples:
        return []
    trials = {trial.name: trial for trial in plan.trials}
    spans = [
        (trials[name].gang, begin, end)
        for lane in plan.lanes
        for branch in BRANCHES
        for name, begin, end in _training(EventReader(paths.lane(lane.index).events(branch)).new())
        if name in on_gpu and name in trials
    ]
    idle = []
    for lane in plan.lanes:
        own = [(begin, end) for gang, begin, end in spans if lane.index in gang]
        during = (sample for sample in samples if any(begin <= sample.at <= end for begin, end in own))
        gpus = (gpu for sample in during for gpu in sample.gpus)
        median = idle_percent(gpu.gpu_util for gpu in gpus if gpu.gpu_uuid == lane.cuda_visible_devices)
        if median is not None:
            idle.append(f"{lane.device} was busy {median:.0f} % of the time")
    if not idle:
        return []
    return [
        f"idle devices: while models trained, {listed(idle)} (median); so their times and rows/s do not show "
        "what the devices can do"
    ]


def _training(events: Sequence[Event]) -> Iterator[tuple[str, float, float]]:
    """Each trial's spans of training: name, begin and end. The settings of a search count for its trial."""
    name, begin = "", math.nan
    for event in events:
        if event.kind not in ("phase", "trial_done", "trial_failed", "trial_left"):
            continue
        if name:
            yield name, begin, event.at
        is_training = event.kind == "phase" and event.text == TRAINING
        name, begin = ((event.trial or "").partition(".")[0] if is_training else ""), event.at
