"""Networks on tables and cards of many sizes: the memory that is planned, and what torch's tracker counts.

    python tests/neural/memory_cases.py > table.md

The tracker (torch.distributed._tools.mem_tracker) follows a whole training on fake tensors: rows, weights,
moments, steps, the copy of the best weights, validation and prediction.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch

from sparkgpu.core.config import toml
from sparkgpu.core.config.parameters import NeuralParameters, TreesParameters
from sparkgpu.core.config.values import Preset
from sparkgpu.core.errors import TrialError
from sparkgpu.core.plan.defaults import resolve
from sparkgpu.core.plan.gpu_memory import network_budget, tree_bytes
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.rundir.records import MemoryRecord
from sparkgpu.core.table.schema import Feature, TableSchema
from sparkgpu.neural.memory_plan import _Shadow, plan_memory
from sparkgpu.neural.model import TabularModel
from sparkgpu.neural.nets.dropout import Place, dropouts, set_place
from sparkgpu.neural.nets.network import build_net, find_network, input_shape
from sparkgpu.neural.rows.fitted import pool_rows
from sparkgpu.neural.rows.resident import ResidentRows
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.optimizer import make_optimizer

GIB = 2**30
NUM_CODES = 3
ARCHITECTURES = ("tabm", "realmlp", "mlp", "resnet", "modernnca")
PRESETS: tuple[Preset, ...] = ("fast", "balanced", "best")
ROWS, COLUMNS, CARDS = (10_000, 100_000, 1_000_000), (30, 200, 1_000), (8, 16, 24, 80)
_SHARE_RESIDENT = 0.6


@dataclass(frozen=True, kw_only=True)
class Case:
    """One network on one table and one card, whose trees are planned beside it."""

    architecture: str
    preset: Preset
    rows: int
    columns: int
    card_gib: int

    def schema(self) -> TableSchema:
        numbers = [
            Feature(name=f"x{i}", source=f"x{i}", kind="numeric", pipeline=f"x{i}")
            for i in range(self.columns - NUM_CODES)
        ]
        words = [
            Feature(
                name=f"w{i}", source=f"w{i}", kind="categorical", pipeline=f"w{i}", levels=("a", "b", "c")
            )
            for i in range(NUM_CODES)
        ]
        valid = self.rows // 5
        return TableSchema(
            source="made", target="y", task="binary", classes=("no", "yes"), features=(*numbers, *words),
            rows=self.rows + 2 * valid, splits={"train": self.rows, "valid": valid, "test": valid},
            fingerprint="",
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Found:
    """The plan of a case and the tracked peak; no plan means that even one row does not fit."""

    plan: MemoryRecord | None
    alone: bool
    resident: bool
    tracked_bytes: int


def parameters_of(case: Case, schema: TableSchema) -> tuple[NeuralParameters, TreesParameters]:
    found = resolve(
        toml.load(options={"neural.architecture": case.architecture}), preset=case.preset, strategy="single",
        size=TableSize.of(schema), device="cuda:0", tree_device=lambda engine: "cuda:0",
    )  # fmt: skip
    return found.neural, found.trees


def model_of(case: Case, config: NeuralParameters) -> TabularModel:
    """The network, untrained, with a transform of as many columns."""
    torch.manual_seed(0)
    raw_NF = torch.from_numpy(
        np.random.default_rng(0).normal(size=(2_000, case.columns - NUM_CODES)).astype(np.float32)
    )
    transform = find_network(config).transform.fit(raw_NF, generator=torch.Generator().manual_seed(0))
    shape = input_shape(config, transform, (3,) * NUM_CODES, 2)
    net, network = build_net(config, shape), find_network(config)
    if network.looks_up and network.start is not None:
        kept = min(case.rows, network.start_rows)
        made = ResidentRows(
            numeric_NG=torch.zeros(kept, transform.num_outputs), weight_N=None,
            codes_NK=torch.zeros(kept, NUM_CODES, dtype=torch.int32),
            target_N=torch.zeros(kept, dtype=torch.int64), row_id_N=torch.arange(kept),
        )  # fmt: skip
        network.start(net, made)
    return TabularModel(transform, net, Objective(task="binary"))


def examine(case: Case, model: TabularModel | None = None) -> Found:
    """Plan the case as a run on a GPU does, and track what it would take."""
    schema = case.schema()
    config, trees = parameters_of(case, schema)
    model = model or model_of(case, config)
    row_bytes = 4 * model.transform.num_outputs + 4 * NUM_CODES + 8
    for beside in (tree_bytes(schema, trees), 0):
        budget = network_budget(case.card_gib * GIB, beside)
        resident = case.rows * row_bytes * 3 <= _SHARE_RESIDENT * budget
        kept = case.rows if resident else min(4 * pool_rows(config, schema), 2 * case.rows)
        valid = schema.splits["valid"]
        table_bytes = (kept + valid) * row_bytes + (8 * case.rows if resident else 0)
        try:
            plan = plan_memory(
                model, NUM_CODES, config, find_network(config).recipe, dtype=torch.bfloat16,
                table_bytes=table_bytes, evaluated_rows=valid, budget_bytes=budget, beside_bytes=beside,
            )  # fmt: skip
        except TrialError:
            continue
        if plan.micro_rows >= 32:
            tracked = _tracked(model, config, plan, kept, valid, orders=case.rows if resident else 0)
            return Found(plan=plan, alone=beside == 0, resident=resident, tracked_bytes=tracked)
    return Found(plan=None, alone=True, resident=False, tracked_bytes=0)


def _tracked(
    model: TabularModel, config: NeuralParameters, plan: MemoryRecord, kept: int, valid: int, *, orders: int
) -> int:
    """The peak that torch's own tracker counts over a step, a validation, a copy and a prediction."""
    from torch.distributed._tools.mem_tracker import (
        MemTracker,
    )  # takes a second, also where tests are only collected

    shadow = _Shadow(model, NUM_CODES, torch.bfloat16)
    net, columns = shadow.net, model.transform.num_outputs
    with shadow._mode:
        tables = [
            (torch.zeros(n, columns), torch.zeros(n, NUM_CODES, dtype=torch.int32), torch.zeros(n).long())
            for n in (kept, valid)
        ]
        order = torch.zeros(orders, dtype=torch.int64)
        tracker = MemTracker()
        tracker.track_external(shadow._model, *(tensor for table in tables for tensor in table), order)
        with tracker:
            optimizer = make_optimizer(net, config, find_network(config).recipe)
            net.train()
            place = Place(seed=0, step=0, first_row=0, batch_rows=config.batch_size)
            set_place(dropouts(net), place)
            numbers, codes, target = (tensor[: plan.micro_rows].clone() for tensor in tables[0])
            ids = (torch.arange(len(numbers)),) if find_network(config).looks_up else ()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                outputs = net(numbers, codes, *ids)
            torch.autograd.backward(model.objective.loss(outputs, target).sum())
            del outputs
            for parameter in net.parameters():
                assert parameter.grad is not None
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)  # as the loop does, before it evaluates
            best = {name: value.detach().clone() for name, value in net.state_dict().items()}
            net.eval()
            tracker.reset_mod_stats()
            with torch.no_grad():
                chunk = min(plan.eval_rows, valid)
                numbers, codes, target = (tensor[:chunk] for tensor in tables[1])
                model.objective.loss_of_mean(net(numbers, codes), target).sum()
                assert best
                tracker.reset_mod_stats()
                raw = torch.zeros(chunk, model.transform.knots_FQ.shape[0])
                shadow._model(raw, codes)
        peak = tracker.get_tracker_snapshot("peak")
    return int(max(found["Total"] for found in peak.values()))


def main() -> None:
    print(
        "| network | preset | rows | columns | card | rows kept | micro-batch | chunk | planned | tracked "
        "| ratio |"
    )
    print("|---|---|---:|---:|---:|---|---:|---:|---:|---:|---:|")
    for architecture, preset, columns in itertools.product(ARCHITECTURES, PRESETS, COLUMNS):
        for rows, card in itertools.product(ROWS, CARDS):
            case = Case(architecture=architecture, preset=preset, rows=rows, columns=columns, card_gib=card)
            found = examine(case)
            plan = found.plan
            cells = [architecture, preset, f"{rows:,}", str(columns), f"{card} GiB"]
            if plan is None:
                print(f"| {' | '.join(cells)} | does not fit | | | | | |", flush=True)
                continue
            kept = ("on the card" if found.resident else "streamed") + (
                ", after the trees" if found.alone else ""
            )
            gib = [f"{size / GIB:.2f} GiB" for size in (plan.peak_bytes, found.tracked_bytes)]
            ratio = f"{plan.peak_bytes / found.tracked_bytes:.2f}"
            print(
                f"| {' | '.join(cells)} | {kept} | {plan.micro_rows:,} | {plan.eval_rows:,} | "
                f"{gib[0]} | {gib[1]} | {ratio} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
