"""What a network takes on a GPU is planned before it trains; torch's own tracker confirms it, without a GPU.

All architectures, presets, tables and cards: ``python tests/neural/memory_cases.py``
(benchmarks/results/2026-11-gpu-memory.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from memory_cases import GIB, Case, examine, model_of, parameters_of
from planted import alone, fit, lane_on, parameters, plant

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import TrialError
from sparkgpu.core.plan.defaults import Resolved
from sparkgpu.core.plan.gpu_memory import PROCESS_BYTES, network_budget, tree_bytes
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import MemoryRecord
from sparkgpu.neural.gpu_share import Card
from sparkgpu.neural.memory_plan import plan_memory
from sparkgpu.neural.model import TabularModel
from sparkgpu.neural.nets.network import find_network
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.strategies.pipeline import PipelineParallel
from sparkgpu.neural.training import trial
from sparkgpu.neural.training.fixed_step import reason_against
from sparkgpu.neural.training.precision import Precision
from sparkgpu.trials.turns import wait_for_network, wait_for_trees

pytestmark = pytest.mark.process  # torch's fake tensors take seconds to load

CASES = [
    ("tabm", "balanced", 10_000, 30, 8),
    ("tabm", "balanced", 1_000_000, 200, 24),
    ("tabm", "best", 1_000_000, 1_000, 16),
    ("realmlp", "best", 1_000_000, 1_000, 8),
    ("resnet", "best", 100_000, 1_000, 8),
    ("modernnca", "best", 100_000, 30, 8),
    pytest.param("modernnca", "best", 100_000, 200, 8, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("architecture", "preset", "rows", "columns", "card"), CASES)
def test_the_planned_peak_is_near_the_tracked_one_and_within_the_card(
    architecture: str, preset: str, rows: int, columns: int, card: int
) -> None:
    found = examine(
        Case(architecture=architecture, preset=preset, rows=rows, columns=columns, card_gib=card)  # type: ignore[arg-type]
    )
    assert found.plan is not None
    assert 0.8 < found.plan.peak_bytes / found.tracked_bytes < 1.2
    assert found.plan.peak_bytes + found.plan.beside_bytes + PROCESS_BYTES <= card * GIB
    assert found.tracked_bytes + found.plan.beside_bytes + PROCESS_BYTES <= card * GIB


def planned(budget_bytes: int, *, captures: bool = False) -> MemoryRecord:
    case = Case(architecture="tabm", preset="balanced", rows=100_000, columns=30, card_gib=8)
    config, _ = parameters_of(case, case.schema())
    return plan_memory(
        model_of(case, config), 3, config, find_network(config).recipe, dtype=torch.bfloat16, table_bytes=0,
        evaluated_rows=20_000, budget_bytes=budget_bytes, beside_bytes=0, captures=captures,
    )  # fmt: skip


def test_less_memory_means_smaller_micro_batches_and_chunks_and_at_last_a_refusal() -> None:
    ample, tight = planned(8 * GIB), planned(90 * 2**20)
    assert (ample.micro_rows, ample.eval_rows) == (512, 20_000)
    assert tight.micro_rows < 512 and tight.eval_rows < 20_000
    assert tight.peak_bytes <= tight.budget_bytes
    with pytest.raises(TrialError, match="the network and its optimizer do not fit the device's memory"):
        planned(5 * 2**20)


def test_chunks_leave_its_memory_to_a_captured_step_if_it_fits_beside_a_plain_one() -> None:
    single = alone()
    single.device = torch.device("cuda:0")
    whole = planned(8 * GIB)
    budget = int(1.06 * (whole.lasting_bytes + whole.evaluation_bytes))
    assert planned(budget).eval_rows == whole.eval_rows
    plan = planned(budget, captures=True)
    assert plan.micro_rows == whole.micro_rows and plan.eval_rows < whole.eval_rows
    assert reason_against(single, parameters(), plan) is None
    tight = planned(90 * 2**20, captures=True)
    assert tight == planned(90 * 2**20)
    assert reason_against(single, parameters(), tight) is not None


def test_the_budgets_of_trees_network_and_processes_add_up_to_no_more_than_the_card() -> None:
    case = Case(architecture="tabm", preset="balanced", rows=1_000_000, columns=200, card_gib=24)
    schema = case.schema()
    _, trees = parameters_of(case, schema)
    beside = tree_bytes(schema, trees)
    # The quantised table takes at least a byte for each value.
    assert beside > PROCESS_BYTES + 200_000_000
    assert beside + PROCESS_BYTES + network_budget(24 * GIB, beside) <= 24 * GIB
    assert network_budget(GIB, 2 * GIB) == 0
    # Others' memory takes the place of the driver's part, and the rest of it is missing.
    assert network_budget(24 * GIB, beside, GIB) == network_budget(24 * GIB, beside)
    assert network_budget(24 * GIB, 0, 8 * GIB) == 16 * GIB - PROCESS_BYTES
    assert tree_bytes(schema, trees.model_copy(update={"tree_method": "hist"})) == 0


@pytest.mark.parametrize(
    ("in_turn", "on_gpu", "beside"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_a_network_plans_for_the_trees_that_train_on_its_card_at_the_same_time(
    in_turn: bool, on_gpu: bool, beside: bool
) -> None:
    case = Case(architecture="tabm", preset="balanced", rows=10_000, columns=30, card_gib=8)
    schema = case.schema()
    neural, trees = parameters_of(case, schema)
    if not on_gpu:
        trees = trees.model_copy(update={"tree_method": "hist"})
    resolved = Resolved(config=config_io.load(), parameters={"trees": trees, "neural": neural})
    lane = lane_on("cuda:0" if on_gpu else "cpu").model_copy(update={"in_turn": in_turn})
    specs = tuple(
        TrialSpec(name=f"{model}-s7", model=model, engine=engine, seed=7, fold=None, lane=0, gang=(0,))
        for model, engine in (("trees", "h2o-xgboost"), ("neural", "torch"))
    )
    plan = Plan(preset="balanced", lanes=(lane,), trials=specs, reasons={})
    assert (plan.bytes_of_trees(specs[1], resolved, schema) > 0) == beside
    assert plan.bytes_of_trees(specs[0], resolved, schema) == 0


@pytest.mark.parametrize(
    ("beside_bytes", "notes"),
    [
        (0, ()),
        (700 * 2**20, ("trained after the trees: the GPU's memory does not hold both at once",)),
    ],
)
def test_a_trial_follows_its_plan_and_records_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside_bytes: int, notes: tuple[str, ...]
) -> None:
    """The code of a GPU on the CPU: only what asks CUDA itself has a stand-in."""
    paths, schema = plant(tmp_path, "binary")
    write_text(paths.lane(0).ended("trees"), "")
    shares: list[float] = []
    card_bytes = int((PROCESS_BYTES + 30 * 2**20) / 0.95)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (card_bytes, card_bytes))
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: shares.append(share)
    )
    monkeypatch.setattr(trial, "_card", lambda device, beside, used: Card(device, beside_bytes))
    told: list[int] = []
    monkeypatch.setattr(Strategy, "use_micro_rows", lambda self, rows: told.append(rows))
    chunks: list[int | None] = []
    made = TabularModel.__init__

    def noted(self: TabularModel, *arguments: Any, chunk_rows: int | None = None) -> None:
        chunks.append(chunk_rows)
        made(self, *arguments, chunk_rows=chunk_rows)

    monkeypatch.setattr(TabularModel, "__init__", noted)
    widths = {"hidden": (512, 512), "epochs": 2, "batch_size": 4_096}
    found = fit(paths, schema, **widths)
    plan = found.record.memory_plan
    assert plan is not None and found.record.notes[-1:] == notes
    assert plan.micro_rows < 4_096 and plan.peak_bytes <= plan.budget_bytes
    assert shares == [plan.budget_bytes / card_bytes]
    assert told == [plan.micro_rows] and plan.eval_rows in chunks
    monkeypatch.undo()
    whole = fit(paths, schema, name="whole", **widths)
    torch.testing.assert_close(torch.from_numpy(found.test), torch.from_numpy(whole.test), atol=1e-5, rtol=0)


def test_a_pipeline_cuts_its_batches_as_the_plan_says() -> None:
    """Two ranks of torch's process group that sends nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    case = Case(architecture="mlp", preset="fast", rows=10_000, columns=30, card_gib=8)
    config, _ = parameters_of(case, case.schema())
    model = model_of(case, config)
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        place = RankPlace(
            device=torch.device("cpu"),
            precision=Precision(device_type="cpu", dtype=None),
            batch_size=1_000,
            micro_rows=1_000,
        )
        pipeline = PipelineParallel(place)
        assert pipeline._micro_rows == 250  # two for each stage
        pipeline.use_micro_rows(60)
        pipeline.spread(model.net, model.objective)
        assert pipeline._pipe._micro_rows == 59 and pipeline._schedule._n_microbatches == 17
        assert pipeline._chunk_rows() >= 1_000
    finally:
        dist.destroy_process_group()


def test_where_nobody_marks_the_end_of_the_trees_the_trial_ends_and_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, schema = plant(tmp_path, "binary")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (PROCESS_BYTES, PROCESS_BYTES))
    monkeypatch.setattr(trial, "_card", lambda device, beside, used: Card(device, 700 * 2**20))
    with pytest.raises(TrialError, match="on a cluster neither waits for the other: train one of them"):
        fit(paths, schema, epochs=1, may_wait=False)


def test_the_wait_for_the_trees_of_all_lanes_of_a_gang_is_a_phase_with_signs_of_life(tmp_path: Path) -> None:
    run = RunPaths(root=tmp_path)
    events = EventWriter(run.lane(0).events("neural"), run.lane(0).phases("neural"))
    write_text(run.lane(0).ended("trees"), "")
    beats = []

    def beat() -> None:
        beats.append(1)
        if len(beats) == 3:
            write_text(run.lane(1).ended("trees"), "")

    wait_for_trees(run, (0, 1), events, beat)
    assert len(beats) == 3
    assert not run.lane(1).network_waits.exists()
    assert "waiting for the trees" in run.lane(0).events("neural").read_text()
    write_text(run.lane(0).network_waits, "")  # trees wait for the network unless it waits for them
    assert not wait_for_network(run, 0, events)
    write_text(run.lane(0).ended("neural"), "")
    assert wait_for_network(run, 0, events)
    wait_for_trees(run, (0, 1), events, beat)
    assert len(beats) == 3
