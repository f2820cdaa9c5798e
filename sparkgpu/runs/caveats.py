"""What a reader of the verdict has to know: models cut off or without skill, and what GPUs did meanwhile.

NVML sees whose processes are on a GPU, and which GPUs idled. Limits: samples are a second apart, so a
shorter trial may have none. Executors of a Spark cluster and ranks on several machines are not watched
from here, and nothing is said about them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from sparkgpu.core.config.registry.engines import BRANCHES, branch_of
from sparkgpu.core.host.telemetry import GpuSample, Sample, idle_percent, read_telemetry
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import TRAINING, Event, EventReader
from sparkgpu.core.rundir.metrics_json import DoneTrial
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.core.words import counted, listed, metric_title, number_text
from sparkgpu.runs.pooled import Pooled
from sparkgpu.score import metrics
from sparkgpu.score.compare import interval
from sparkgpu.score.predictions import SEED, Labels

_LIMITS = {"trees": ("tree", "ntrees"), "neural": ("epoch", "epochs")}
_LOSS = {"binary": "log_loss", "multiclass": "log_loss", "regression": "rmse"}


def caveats(
    schema: TableSchema, trials: Sequence[DoneTrial], pooled: Mapping[str, Pooled], test: Labels
) -> tuple[str, ...]:
    """One sentence for each caveat on the `pooled` predictions of models and on their `trials`."""
    return (*_asked_for(schema), *_cut_off(trials), *_no_better_than_a_constant(schema, pooled, test))


def _asked_for(schema: TableSchema) -> list[str]:
    loss = _LOSS[schema.task]
    if schema.metric is None or schema.metric in (loss, *schema.deviances):
        return []
    metric, by = metric_title(schema.metric), " or ".join(map(metric_title, (loss, *schema.deviances)))
    return [f"{metric} chose among models; each was trained, and stopped, by {by}"]


def _cut_off(trials: Sequence[DoneTrial]) -> list[str]:
    found = []
    for model in dict.fromkeys(trial.model for trial in trials):
        own = [trial for trial in trials if trial.model == model]
        short = [trial for trial in own if trial.still_improving]
        if not short:
            continue
        unit, key = _LIMITS[branch_of(own[0].engine)]
        which = "" if len(own) == 1 else f" in {len(short)} of {counted(len(own), 'trial')}"
        if any(trial.out_of_time for trial in short):
            reached = max(trial.steps or 0 for trial in short)
            found.append(
                f"{model}: the time limit ended training at {counted(reached, unit)}{which} while the "
                "validation rows still gained; with more time it may be better"
            )
            continue
        limit = f"{branch_of(own[0].engine)}.{key}"
        most = max(trial.most_steps or 0 for trial in short)
        found.append(
            f"{model}: training reached its limit of {counted(most, unit)}{which} while the validation rows "
            f"still gained; a larger {limit} or another preset may give a better model"
        )
    return found


def constant_of(schema: TableSchema, test: Labels) -> np.ndarray:
    """The best constant prediction of the rows, which is their own mean, for each of them."""
    share_N = test.counts() / test.counts().sum()
    if schema.classes:
        mean = np.bincount(test.label_N.astype(np.int64), weights=share_N, minlength=len(schema.classes))
    else:
        mean = np.asarray(share_N @ test.label_N)
    return np.broadcast_to(mean, (len(share_N), *mean.shape))


def _no_better_than_a_constant(schema: TableSchema, pooled: Mapping[str, Pooled], test: Labels) -> list[str]:
    """The models whose loss on the test rows is no smaller than that of the rows' own mean."""
    metric = _LOSS[schema.task]
    constant = constant_of(schema, test)

    def loss(prediction: np.ndarray) -> float:
        found = metrics.mean_loss(schema.task, test.label_N, prediction, test.weight_N)
        return math.sqrt(found) if metric == "rmse" else found

    least = loss(constant)
    title = metric_title(metric)
    sentences = []
    for name, of_model in pooled.items():
        if (found := loss(of_model.test)) < least:
            continue
        text = (
            f"no better than one constant prediction for all test rows ({title} {number_text(found)} against "
            f"{number_text(least)})"
        )
        low = None
        if schema.task == "binary":
            low, _ = interval(schema.task, test.label_N, of_model.test, SEED, weight_N=test.weight_N)
        if low is not None and low > 0.5:
            auc = metrics.compute(schema.task, test.label_N, of_model.test, test.weight_N)["roc_auc"]
            text = f"its probabilities are {text}; its order of the rows is (ROC AUC {number_text(auc)})"
        sentences.append(f"{name}: {text}")
    return sentences


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
    looks = [
        gpu
        for sample in samples
        if fit.began_at <= sample.at <= fit.ended_at
        for gpu in sample.gpus
        if gpu.gpu_uuid in uuids
    ]
    seen = [(gpu.gpu_uuid, pids) for gpu in looks if (pids := _own(gpu, f"{spec.lane}/{spec.branch}"))]
    places, pids = sorted({uuid for uuid, _ in seen}), sorted({pid for _, own in seen for pid in own})
    if seen:
        noun = "process" if len(pids) == 1 else "processes"
        said = f"{noun} {listed(pids)} on {listed(places)} in {len(seen)} of {len(looks)} samples"
    else:
        said = f"no process in {len(looks)} samples; in a container the driver may number processes otherwise"
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
