"""What a network will take on a GPU, found out before it trains, and the micro-batches that follow from it.

A copy of the network without memory (torch's fake tensors) takes one step and evaluates one chunk, and what
its tensors would take is counted, rounded up to 512 bytes each as torch's allocator does. Fake tensors, and
the dictionaries of a module's tensors, stand behind an underscore in torch; read in 2.13.

B rows of a micro-batch or a chunk.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.core.errors import TrialError
from sparkgpu.core.rundir.records import MemoryRecord
from sparkgpu.neural.model import TabularModel
from sparkgpu.neural.nets.dropout import Place, dropouts, set_place
from sparkgpu.neural.nets.inputs import PiecewiseEmbeddings
from sparkgpu.neural.nets.network import TabularNet, find_network
from sparkgpu.neural.training.memory import TOO_LARGE
from sparkgpu.neural.training.optimizer import Recipe, in_batches, learns_by_muon

_ROUNDED = 512
_LEAST_CHUNK, _MOST_CHUNK = 1_024, 131_072
_MUON_COPIES = 6  # of the matrices whose updates are made orthogonal together
_SLACK = 1.05  # the allocator's blocks cannot always be used again in full


def plan_memory(
    model: TabularModel,
    num_codes: int,
    config: NeuralParameters,
    recipe: Recipe,
    *,
    dtype: torch.dtype | None,
    table_bytes: int,
    evaluated_rows: int,
    budget_bytes: int,
    beside_bytes: int,
    shards: int = 1,
    captures: bool = False,
) -> MemoryRecord:
    """The largest micro-batches and chunks with which `model`, on the CPU, fits `budget_bytes` of a GPU.

    `num_codes` is the number of its categorical columns, `dtype` that of autocast (None: float32).
    `table_bytes` are the rows that stay there, `evaluated_rows` is the largest number to evaluate, and
    `beside_bytes` are what others take. `shards` is the number of ranks over which weights and moments are
    cut. If a step is to be captured (`captures`) and fits beside a plain one, chunks leave it its memory.
    Raises `TrialError` if not even one row fits.
    """
    assert isinstance(model.net, TabularNet)
    shadow = _Shadow(model, num_codes, dtype, looks_up=find_network(config).looks_up)
    lasting = _lasting(shadow.net, config, recipe) // shards
    free = int(budget_bytes / _SLACK) - table_bytes - lasting
    micro_rows, step_bytes = config.micro_batch_size, 0
    while True:
        step_bytes = shadow.step(micro_rows, config.batch_size)
        if step_bytes <= free:
            break
        if micro_rows == 1:
            raise TrialError(TOO_LARGE)
        micro_rows = -(-micro_rows // 2)
    eval_rows = min(_MOST_CHUNK, max(evaluated_rows, _LEAST_CHUNK))
    if captures and 2 * step_bytes <= free:
        free -= step_bytes
    while (eval_bytes := shadow.evaluation(eval_rows)) > free:
        if eval_rows == 1:
            raise TrialError(TOO_LARGE)
        eval_rows = -(-eval_rows // 2)
    return MemoryRecord(
        budget_bytes=budget_bytes,
        beside_bytes=beside_bytes,
        table_bytes=table_bytes,
        lasting_bytes=lasting,
        step_bytes=step_bytes,
        evaluation_bytes=eval_bytes,
        micro_rows=micro_rows,
        eval_rows=eval_rows,
    )


def _lasting(net: TabularNet, config: NeuralParameters, recipe: Recipe) -> int:
    """Weights, buffers, moments, the copy of the best weights, and what a step of Muon needs."""
    total, hidden = sum(_size(buffer) for buffer in net.buffers()), []
    for name, parameter in net.named_parameters():
        is_muon = learns_by_muon(name, config, recipe)
        total += _size(parameter) * ((2 if is_muon else 3) + bool(config.patience))
        if is_muon:
            hidden.append(parameter)
    steps = (len(together) * max(map(_size, together)) for together in in_batches(hidden))
    return total + _MUON_COPIES * max(steps, default=0)


class _Shadow:
    """A copy of a model whose tensors have shapes and no memory."""

    def __init__(
        self, model: TabularModel, num_codes: int, dtype: torch.dtype | None, *, looks_up: bool = False
    ) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._model = copy.deepcopy(model)
        self._dtype = dtype
        self._num_numeric = model.transform.knots_FQ.shape[0]
        self._num_inputs = model.transform.num_outputs
        assert isinstance(self._model.net, TabularNet)
        self.net = self._model.net
        self._num_codes = num_codes
        self._looks_up = looks_up
        for module in self._model.modules():
            if isinstance(module, PiecewiseEmbeddings):
                module.is_exported = True  # a GPU keeps the published form, which takes more
            _replace(module._parameters, lambda value: nn.Parameter(self._mode.from_tensor(value.detach())))
            _replace(module._buffers, self._mode.from_tensor)

    def step(self, rows: int, batch_rows: int) -> int:
        """Peak bytes of the gradient of `rows` rows of a batch, the gradient itself included."""
        net, objective = self.net, self._model.objective
        net.train()
        set_place(dropouts(net), Place(seed=0, step=0, first_row=0, batch_rows=max(batch_rows, rows)))
        peak = _Peak()
        with self._mode, peak:
            numeric_BG, codes_BK, target_B = self._rows(rows, self._num_inputs)
            ids = (torch.zeros(rows, dtype=torch.int64),) if self._looks_up else ()
            with torch.autocast("cpu", dtype=self._dtype, enabled=self._dtype is not None):
                outputs_BMC = net(numeric_BG, codes_BK, *ids)
            torch.autograd.backward(objective.loss(outputs_BMC, target_B).sum())
        for parameter in net.parameters():
            parameter.grad = None
        return peak.bytes

    def evaluation(self, rows: int) -> int:
        """Peak bytes of a chunk of the validation, or of the prediction if that takes more."""
        self._model.eval()
        found = []
        with torch.no_grad(), self._mode:
            for work in (self._validate, self._predict):
                peak = _Peak()
                with peak:
                    work(rows)
                found.append(peak.bytes)
        return max(found)

    def _validate(self, rows: int) -> None:
        numeric_BG, codes_BK, target_B = self._rows(rows, self._num_inputs)
        self._model.objective.loss_of_mean(self.net(numeric_BG, codes_BK), target_B).sum(dtype=torch.float64)

    def _predict(self, rows: int) -> None:
        raw_BF, codes_BK, _ = self._rows(rows, self._num_numeric)
        self._model(raw_BF, codes_BK)

    def _rows(self, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
        objective = self._model.objective
        regression = objective.task == "regression"
        return (
            torch.zeros(rows, columns),
            torch.zeros(rows, self._num_codes, dtype=torch.int32),
            torch.zeros((rows, *objective.target_shape), dtype=torch.float32 if regression else torch.int64),
        )


def _replace(tensors: dict[str, Any], change: Callable[[Tensor], Tensor]) -> None:
    for name, value in tensors.items():
        if value is not None:
            tensors[name] = change(value)


class _Peak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that are made inside the block: `bytes` is their peak."""

    bytes: int

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0
        self._now = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._note, out)
        return out

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._known:
            return
        self._known.add(storage)
        size = _size(tensor)
        self._now += size
        self.bytes = max(self.bytes, self._now)
        weakref.finalize(storage, self._freed, size)

    def _freed(self, size: int) -> None:
        self._now -= size


def _size(tensor: Tensor) -> int:
    return -(-tensor.untyped_storage().nbytes() // _ROUNDED) * _ROUNDED
