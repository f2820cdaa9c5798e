"""A network as ONNX, from raw numbers and category words to predictions; onnxruntime alone can run it.

Each feature is an input of its own, (N, 1): numbers as float32, NaN for missing, and words as strings, an
empty one for missing. The output ``probabilities`` (N, C), in the order of ``classes`` in the model's
metadata, or ``prediction`` (N,) is float64.

N rows (B of a batch), F numeric features, K categorical features, G transformed columns, Q knots.
"""

from __future__ import annotations

import copy
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparkgpu.core.errors import ConfigError
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.model import TabularModel
from sparkgpu.neural.nets.inputs import PiecewiseEmbeddings
from sparkgpu.neural.nets.modernnca import Neighbours
from sparkgpu.neural.nets.tabm import FirstBlock
from sparkgpu.neural.preprocess import (
    NumericTransform,
    QuantileNormal,
    RobustClip,
    bend,
    middle_and_unit,
)
from sparkgpu.predict.exported_columns import MeansOf
from sparkgpu.predict.onnx_columns import input_name, inputs_of, mean_node, save_onnx, words_of

_OPSET = 18
_EXAMPLE_ROWS = 3
_NUMBERS, _CODES = "sparkgpu_numbers", "sparkgpu_codes"

# Wichura (1988), "Algorithm AS 241: The percentage points of the normal distribution", Applied Statistics 37,
# PPND7: the quantiles of the normal distribution to about 7 digits.
_NEAR = 0.425
_CENTRE = (3.3871327179, 50.434271938, 159.29113202, 59.109374720)
_CENTRE_BELOW = (1.0, 17.895169469, 78.757757664, 67.187563600)
_MIDDLE = (1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103)
_MIDDLE_BELOW = (1.0, 0.73700164250, 0.12021132975)
_FAR = (6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997)
_FAR_BELOW = (1.0, 0.24197894225, 0.012258202635)


def network_as_onnx(
    model: TabularModel, schema: TableSchema, file: Path, means: MeansOf, temperature: float = 1.0
) -> None:
    """Write the network to `file`; its probabilities are at `temperature`.

    Raises ImportError if onnx or onnxscript is not installed.
    """
    import onnx
    import onnxscript  # noqa: F401  # torch needs it, and would say so in a long traceback

    with tempfile.TemporaryDirectory(prefix="sparkgpu-onnx-") as folder:
        core = Path(folder) / "core.onnx"
        _export_core(_Core(model, temperature).eval(), schema, core)
        save_onnx(_with_columns(onnx.load(core), schema, means), schema, file)


class _Core(nn.Module):
    """Raw numbers (B, F) and codes (B, K) to predictions, with operators that ONNX has."""

    def __init__(self, model: TabularModel, temperature: float) -> None:
        super().__init__()
        self.transform = _exportable(model.transform)
        self.net = copy.deepcopy(model.net).eval()
        self.objective = replace(model.objective, temperature=temperature)
        for module in self.net.modules():
            if isinstance(module, FirstBlock):
                module.may_merge = False  # it would depend on the number of rows
            if isinstance(module, PiecewiseEmbeddings | Neighbours):
                module.is_exported = True

    def forward(self, raw_BF: Tensor, codes_BK: Tensor) -> Tensor:
        return self.objective.predict(self.net(self.transform(raw_BF), codes_BK))


class _Quantiles(nn.Module):
    """`QuantileNormal` without a search: a value's place is the number of knots that are not above it."""

    knots_FQ: Tensor
    mid_FQ: Tensor
    missing_M: Tensor

    def __init__(self, fitted: QuantileNormal) -> None:
        super().__init__()
        for name in ("knots_FQ", "mid_FQ", "missing_M"):
            self.register_buffer(name, getattr(fitted, name).clone())
        self._num_missing = len(fitted.missing_M)

    def forward(self, raw_BF: Tensor) -> Tensor:
        knots_FQ, last = self.knots_FQ, self.knots_FQ.shape[1] - 1
        is_missing_BF = torch.isnan(raw_BF)
        x_BF = torch.where(is_missing_BF, torch.zeros_like(raw_BF), raw_BF)
        x_BF = torch.minimum(torch.maximum(x_BF, knots_FQ[:, 0]), knots_FQ[:, -1])
        left_BF = (x_BF.unsqueeze(2) >= knots_FQ).to(torch.int32).sum(2).long() - 1
        next_BF = torch.clamp(left_BF + 1, max=last)
        left_FB, next_FB = left_BF.t(), next_BF.t()
        lower_BF = knots_FQ.gather(1, left_FB).t()
        upper_BF = knots_FQ.gather(1, next_FB).t()
        gap_BF = upper_BF - lower_BF
        between_BF = torch.where(gap_BF > 0, (x_BF - lower_BF) / torch.where(gap_BF > 0, gap_BF, 1.0), 0.0)
        rank_BF = torch.where(between_BF > 0, left_BF + between_BF, self.mid_FQ.gather(1, left_FB).t())
        z_BF = _normal_quantile((rank_BF / last).double()).float().clamp(-_REACH, _REACH)
        return _with_missing(z_BF, is_missing_BF, self.missing_M, self._num_missing)


_REACH = 5.199337582605575  # as in `QuantileNormal`
_LARGEST = 8e37  # so that a difference stays finite


def _normal_quantile(p: Tensor) -> Tensor:
    q = p - 0.5
    near = _NEAR * _NEAR - q * q
    centre = q * _ratio(near, _CENTRE, _CENTRE_BELOW)
    tail = torch.clamp(torch.where(q < 0, p, 1.0 - p), min=1e-30)
    r = torch.sqrt(-torch.log(tail))
    outer = torch.where(r <= 5.0, _ratio(r - 1.6, _MIDDLE, _MIDDLE_BELOW), _ratio(r - 5.0, _FAR, _FAR_BELOW))
    return torch.where(torch.abs(q) <= _NEAR, centre, torch.sign(q) * outer)


def _ratio(x: Tensor, above: Sequence[float], below: Sequence[float]) -> Tensor:
    return _polynomial(x, above) / _polynomial(x, below)


def _polynomial(x: Tensor, factors: Sequence[float]) -> Tensor:
    found = torch.full_like(x, factors[-1])
    for factor in reversed(factors[:-1]):
        found = found * x + factor
    return found


class _Robust(nn.Module):
    """`RobustClip` with the median and the spread of each column computed before."""

    middle_F: Tensor
    unit_F: Tensor
    missing_M: Tensor

    def __init__(self, fitted: RobustClip) -> None:
        super().__init__()
        middle_F, unit_F = middle_and_unit(fitted.knots_FQ)
        for name, value in (("middle_F", middle_F), ("unit_F", unit_F), ("missing_M", fitted.missing_M)):
            self.register_buffer(name, value.clone())
        self._num_missing = len(fitted.missing_M)

    def forward(self, raw_BF: Tensor) -> Tensor:
        is_missing_BF = torch.isnan(raw_BF)
        x_BF = torch.where(is_missing_BF, torch.zeros_like(raw_BF), raw_BF)
        bent_BF = bend(x_BF.t().clamp(-_LARGEST, _LARGEST), self.middle_F, self.unit_F).t()
        return _with_missing(bent_BF, is_missing_BF, self.missing_M, self._num_missing)


def _with_missing(z_BF: Tensor, is_missing_BF: Tensor, missing_M: Tensor, num_missing: int) -> Tensor:
    """0 for a missing value, and the indicators of the columns that miss some."""
    z_BF = torch.where(is_missing_BF, 0.0, z_BF)
    if not num_missing:
        return z_BF
    return torch.cat([z_BF, is_missing_BF.index_select(1, missing_M).float()], dim=1)


def _exportable(transform: NumericTransform) -> nn.Module:
    if isinstance(transform, QuantileNormal):
        return _Quantiles(transform)
    if isinstance(transform, RobustClip):
        return _Robust(transform)
    raise ConfigError(
        f"--format onnx: {type(transform).__name__}, this network's scaling, has no form in ONNX."
    )


def _export_core(model: nn.Module, schema: TableSchema, file: Path) -> None:
    raw_BF = torch.zeros(_EXAMPLE_ROWS, len(schema.numeric))
    codes_BK = torch.zeros(_EXAMPLE_ROWS, len(schema.categorical), dtype=torch.int64)
    batch = torch.export.Dim.DYNAMIC
    with _silent():
        torch.onnx.export(
            model,
            (raw_BF, codes_BK),
            file,
            input_names=[_NUMBERS, _CODES],
            output_names=["probabilities" if schema.classes else "prediction"],
            opset_version=_OPSET,
            dynamo=True,
            dynamic_shapes=({0: batch}, {0: batch}),
            external_data=False,
            verbose=False,
        )


@contextmanager
def _silent() -> Iterator[None]:
    """Without torch's remarks on packages that are not installed and on its own functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


def _with_columns(core: Any, schema: TableSchema, means: MeansOf) -> Any:
    """The model with one input for each feature, in front of the two matrices."""
    from onnx import helper

    graph, nodes = core.graph, []
    parts: dict[str, list[str]] = {_NUMBERS: [], _CODES: []}
    for feature in schema.features:
        name = input_name(feature)
        if feature.kind == "numeric":
            parts[_NUMBERS].append(name)
            if feature.means_of is not None:
                nodes.append(mean_node(feature, means, name))
            continue
        keys, codes, other = words_of(feature, {word: i for i, word in enumerate(feature.levels)}, -1)
        nodes.append(
            helper.make_node(
                "LabelEncoder", [name], [f"{name} code"], domain="ai.onnx.ml",
                keys_strings=keys, values_int64s=codes, default_int64=other,
            )
        )  # fmt: skip
        parts[_CODES].append(f"{name} code")
    used = {value.name for value in graph.input}
    for matrix, columns in parts.items():
        if columns and matrix in used:
            nodes.append(helper.make_node("Concat", columns, [matrix], axis=1))
    for node in reversed(nodes):
        graph.node.insert(0, node)
    del graph.input[:]
    graph.input.extend(inputs_of(schema))
    if all(one.domain != "ai.onnx.ml" for one in core.opset_import):
        core.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return core
