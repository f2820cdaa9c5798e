"""The torch engine: a network in this process, or as a gang of ranks that a launcher starts."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from sparkgpu.core.config.registry.strategies import STRATEGIES
from sparkgpu.core.errors import DeviceError
from sparkgpu.core.host.torch_builds import dotted, has_code
from sparkgpu.core.plan.plan import LanePlan
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.model import TabularModel, load_model
from sparkgpu.neural.strategies.base import RankPlace
from sparkgpu.neural.training.precision import choose_precision
from sparkgpu.neural.training.trial import run_rank
from sparkgpu.trials.engine import NeuralTrial, Platform


class Torch:
    """An engine (`sparkgpu.trials.engine.Engine`).

    Once the trial's cores are free, training in this process takes all of the lane, where that changes no bit
    (`Precision.keeps_threads`). In float32 that needs ``MKL_CBWR=AUTO,STRICT`` in the environment, without
    which MKL sums some products in another order. Sets torch's threads and seed for the whole process.
    """

    def __init__(self, platform: Platform) -> None:
        """It needs nothing of `platform`."""

    def run(self, trial: NeuralTrial) -> FitRecord:
        if trial.spec.nodes > 1:
            from sparkgpu.neural.launchers.machines import train_on_machines

            return train_on_machines(trial)
        if STRATEGIES.find(trial.spec.strategy).devices == "ranks":
            from sparkgpu.neural.launchers.local import train_locally  # importing the elastic agent is slow

            return train_locally(trial)
        return _train_here(trial)

    @staticmethod
    def load(folder: Path, schema: TableSchema) -> TabularModel:
        """`schema` stands in the model's own file, too."""
        return load_model(folder)


def _train_here(trial: NeuralTrial) -> FitRecord:
    spec, lane = trial.spec, trial.lane
    device = usable_device(lane)
    torch.set_num_threads(lane.neural_threads)
    precision = choose_precision(trial.parameters, device, lane.device_name, spec.strategy)
    place = RankPlace(device=device, precision=precision, num_devices=len(spec.gang))
    record = run_rank(trial, STRATEGIES.find(spec.strategy).loaded()(place))
    assert record is not None  # the only rank is the leading one
    return record


def usable_device(lane: LanePlan, index: int = 0) -> torch.device:
    """The lane's device, or device number `index` of those visible to this process.

    Raises `DeviceError` if it is a GPU that torch cannot use; it never falls back to the CPU.
    """
    if not lane.device.startswith("cuda"):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        raise DeviceError(
            f"lane {lane.index} trains its network on {lane.device} ({lane.device_name}), but torch "
            f"{torch.__version__} finds no usable GPU (CUDA_VISIBLE_DEVICES={visible}). Install a CUDA "
            "build of torch that fits the driver, or ask for CPU lanes with --cpu-lanes 1."
        )
    capability = torch.cuda.get_device_capability(index)
    if not has_code(torch.cuda.get_arch_list(), capability):
        raise DeviceError(
            f"lane {lane.index} trains its network on {lane.device} ({lane.device_name}), for whose compute "
            f"capability {dotted(capability)} torch {torch.__version__} has no code. `sparkgpu doctor` gives "
            "the command that installs a build that has, or ask for CPU lanes with --cpu-lanes 1."
        )
    return torch.device("cuda", index)
