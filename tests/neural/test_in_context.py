"""Models that read training rows as they predict: what they read, keep and say, with random weights.

The published weights are in no package, so what they predict is not tested.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import lane_on, plant

from sparkgpu.core.config import toml
from sparkgpu.core.config.context_keys import ContextParameters
from sparkgpu.core.config.registry.engines import ENGINES
from sparkgpu.core.errors import ConfigError, DeviceError, TrialError
from sparkgpu.core.plan.defaults import resolve
from sparkgpu.core.plan.tree_defaults import TableSize
from sparkgpu.core.plan.trials import TrialSpec, lay_out_trials
from sparkgpu.core.rundir.events import EventWriter
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.predictions import read_predictions
from sparkgpu.core.table.rows import Rows, read_rows
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.in_context import engine
from sparkgpu.runs.provenance import check_engines
from sparkgpu.trials.engine import Platform, Trial, load_fitted, make_engine

needs_tabicl = pytest.mark.skipif(
    ENGINES.find("tabicl").missing is not None,
    reason="tabicl is not installed: pip install 'sparkgpu[tabicl]'",
)
SIZE = TableSize(task="binary", train_rows=1_000, num_features=4, num_classes=2)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files as the package's authors publish them, of tiny networks with random weights."""
    from tabicl._model.tabicl import TabICL

    found = {}
    for kind, classes in (("classes", 10), ("numbers", 0)):
        torch.manual_seed(0)
        config = {
            "max_classes": classes, "num_quantiles": 9, "embed_dim": 16, "col_num_blocks": 1, "col_nhead": 2,
            "col_num_inds": 8, "row_num_blocks": 1, "row_nhead": 2, "row_num_cls": 2, "icl_num_blocks": 1,
            "icl_nhead": 2, "zero_init": False,
        }  # fmt: skip
        found[kind] = tmp_path_factory.mktemp("weights") / f"{kind}.ckpt"
        torch.save({"config": config, "state_dict": TabICL(**config).state_dict()}, found[kind])
    return found


def fit(
    paths: RunPaths, schema: TableSchema, checkpoint: Path | None,
    own: engine.InContextEngine | None = None, *, until: float | None = None, **settings: int,
) -> FitRecord:  # fmt: skip
    spec = TrialSpec(name="tabicl-s7", model="tabicl", engine="tabicl", seed=7, fold=None, lane=0, gang=(0,))
    lane = paths.lane(0)
    asked = {"rows": 10_000, "columns": 100, "estimators": 2, **settings}
    trial: Trial[Any] = Trial(
        spec=spec,
        parameters=ContextParameters(
            engine="tabicl", checkpoint=None if checkpoint is None else str(checkpoint), **asked
        ),
        schema=schema,
        run=paths,
        lane=lane_on("cpu"),
        events=EventWriter(lane.events("neural"), lane.phases("neural")),
        scratch=paths.root,
        until=until,
    )
    found: FitRecord = (own or make_engine("tabicl", Platform())).run(trial)
    return found


class Nearest(engine.InContextEngine):
    """A model of the tests' own: a row has the label of the nearest row that it reads, in each view."""

    most_rows, chunks = 10**9, list[int]()

    def weights(self, context: engine.Context, checkpoint: str | None) -> engine.Weights:
        assert checkpoint is not None
        return engine.Weights(file=Path(checkpoint), described="none")

    @staticmethod
    def read(context: engine.Context, weights: Path, device: str) -> engine.Reader:
        known_NX = np.nan_to_num(context.x_NX)

        def predict(x_NX: np.ndarray) -> np.ndarray:
            if len(x_NX) > Nearest.most_rows:
                raise RuntimeError("Failed at the least batch. Error: CUDA out of memory. Tried to allocate")
            Nearest.chunks.append(len(x_NX))
            distance_NN = np.abs(np.nan_to_num(x_NX)[:, None] - known_NX[None]).sum(2)
            found: np.ndarray = context.label_N[distance_NN.argmin(1)].astype(float)
            return found

        return engine.Reader(predict=predict)


def near(folder: Path, monkeypatch: pytest.MonkeyPatch, *, until: float | None = None,
         budget: int | None = None, **settings: int) -> tuple[FitRecord, np.ndarray]:  # fmt: skip
    """A trial of `Nearest`, on the CPU; with `budget` as on a GPU with so many bytes for it."""
    monkeypatch.setattr(engine, "_device", lambda trial: (torch.device("cpu"), budget))
    monkeypatch.setattr(Nearest, "chunks", [])
    paths, schema = plant(folder, "regression", rows=2_000)
    record = fit(paths, schema, paths.schema, Nearest(Platform()), until=until, **settings)
    return record, read_predictions(paths.trial("tabicl-s7").predictions, schema)["test"][1]


def test_a_gpu_bounds_the_rows_that_are_read_and_those_that_are_predicted_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = near(tmp_path / "ample", monkeypatch, budget=2**30)
    assert (whole.train_rows, whole.notes, Nearest.chunks) == (1_200, (), [800])
    less, _ = near(tmp_path / "tight", monkeypatch, budget=800 * Nearest.row_bytes)
    assert (less.train_rows, Nearest.chunks) == (300, [500, 300])
    assert less.notes == ("it reads 300 of the 1,200 training rows, drawn at random",)
    plan = less.memory_plan
    assert plan is not None and plan.peak_bytes == plan.budget_bytes and plan.eval_rows == 500


def test_rows_that_do_not_fit_at_once_are_halved_and_predicted_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = near(tmp_path / "ample", monkeypatch)
    monkeypatch.setattr(Nearest, "most_rows", 300)
    _, found = near(tmp_path / "tight", monkeypatch)
    assert Nearest.chunks == [200] * 4 and np.array_equal(found, whole)
    monkeypatch.setattr(Nearest, "most_rows", 0)
    with pytest.raises(TrialError, match="one row at a time: lower the rows or columns that it reads, or"):
        near(tmp_path / "none", monkeypatch)


@pytest.mark.parametrize(
    ("share", "views", "rows", "notes"),
    [
        (1.5, 8, 1_200, ()),
        (0.4, 3, 1_200, ("the time limit left 3 of its 8 views",)),
        (0.07, 1, 672, ("the time limit left 1 of its 8 views",)),
        (0.0, 1, 500, ("the time limit left 1 of its 8 views",)),
    ],
)
def test_a_short_time_leaves_fewer_views_and_then_fewer_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, views: int, rows: int, notes: tuple[str]
) -> None:
    monkeypatch.setattr(engine, "_share_in_time", lambda *_: share)
    record, _ = near(tmp_path, monkeypatch, until=1.0, estimators=8)
    assert (record.train_rows, record.out_of_time) == (rows, share < 1)
    assert record.notes[: len(notes)] == notes
    saved = json.loads((tmp_path / "trials" / "tabicl-s7" / "model.json").read_text())
    assert saved["estimators"] == views


def test_the_time_that_all_rows_take_follows_from_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(engine.time, "monotonic", lambda: clock[0])

    def predict(x_NX: np.ndarray) -> np.ndarray:
        clock[0] += 1e-3 * (1_000 + len(x_NX))  # the context, and then the rows
        return np.zeros(len(x_NX))

    model = engine.ContextModel(
        reader=engine.Reader(predict=predict), device=torch.device("cpu"), rows_at_once=2_000,
        columns_X=np.arange(1), classes_P=None, num_classes=0,
    )  # fmt: skip
    rows = Rows(
        row_id_N=np.arange(4_000), numeric_NF=np.zeros((4_000, 1), np.float32),
        codes_NK=np.zeros((4_000, 0), np.int32), label_N=np.zeros(4_000), weight_N=None,
    )  # fmt: skip
    # A second and a half for the few, two times the context and all rows for the rest.
    assert engine._share_in_time(model, rows, 1_000, until=1.5 + 1.3 * 6.0) == pytest.approx(1.0)
    assert engine._share_in_time(model, rows, 1_000, until=clock[0]) == 0.0


@needs_tabicl
@pytest.mark.parametrize(("task", "kind"), [("binary", "classes"), ("regression", "numbers")])
def test_a_trial_keeps_its_context_and_its_files_predict_the_same(
    tmp_path: Path, checkpoints: dict[str, Path], task: str, kind: str
) -> None:
    paths, schema = plant(tmp_path, task, rows=300)
    record = fit(paths, schema, checkpoints[kind])
    trial = paths.trial("tabicl-s7")
    found = read_predictions(trial.predictions, schema)
    test = read_rows(paths, schema, "test")
    checkpoints[kind].rename(checkpoints[kind].with_suffix(".gone"))  # the trial has its own
    try:
        again = load_fitted("tabicl", trial.root, schema).predict(test)
    finally:
        checkpoints[kind].with_suffix(".gone").rename(checkpoints[kind])
    np.testing.assert_allclose(again, found["test"][1], atol=1e-6 * max(1, np.abs(again).max()))
    assert np.array_equal(found["test"][0], test.row_id_N) and len(found["valid"][0]) == 60
    assert np.std(found["test"][1].reshape(60, -1)[:, 0]) > 0  # it reads the rows
    assert record.train_rows == 180 and record.notes == ()
    assert record.native_parameters["weights"].startswith(f"{kind}.ckpt, 0.1 MB, 2")
    assert record.native_parameters["weights"].endswith("licence: that of whoever made this file")


@needs_tabicl
def test_rows_columns_classes_and_weights_beyond_its_limits_are_left_out_and_said(
    tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    label_N = np.random.default_rng(0).integers(0, 13, 600)
    label_N[:590][label_N[:590] == 12] = 0
    label_N[0] = 12  # one training row has this class
    paths, schema = plant(tmp_path, "multiclass", rows=600, label_N=label_N, weight_N=np.ones(600))
    schema = schema.model_copy(update={"classes": tuple(f"c{code:02d}" for code in range(14))})
    record = fit(paths, schema, checkpoints["classes"], rows=50, columns=3)
    assert record.notes == (
        "it reads 50 of the 360 training rows, drawn at random",
        "it reads 3 of the 4 columns, drawn at random",
        "it knows no row weights: they count in the metrics alone",
        "its weights know 10 classes at once: 13 are told apart in steps",
    )
    values_NC = read_predictions(paths.trial("tabicl-s7").predictions, schema)["test"][1]
    assert values_NC.shape == (120, 14) and not values_NC[:, 13].any()  # no row shows the last class
    assert (values_NC[:, 12] > 0).all()  # a class is drawn even if it has one row
    np.testing.assert_allclose(values_NC.sum(axis=1), 1.0)


@needs_tabicl
def test_weights_for_another_task_damaged_or_out_of_reach_are_refused_in_a_sentence(
    tmp_path: Path, checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, schema = plant(tmp_path, "binary", rows=100)
    with pytest.raises(TrialError, match=r"numbers.ckpt: these weights predict numbers, and this table h"):
        fit(paths, schema, checkpoints["numbers"])
    damaged = tmp_path / "damaged.ckpt"
    damaged.write_bytes(b"no weights")
    with pytest.raises(TrialError, match=r"damaged.ckpt: no weights that TabICL can read .*classifier-v2"):
        fit(paths, schema, damaged)

    def offline(*arguments: object, **named: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("tabicl._sklearn.classifier.hf_hub_download", offline)
    with pytest.raises(TrialError) as refused:
        fit(paths, schema, None)
    assert str(refused.value) == (
        "the weights of TabICL cannot be downloaded (OSError: no network). Where there is a network, "
        "download tabicl-classifier-v2-20260212.ckpt, and name the file with tabicl.checkpoint."
    )


def test_it_is_a_model_like_others_with_a_section_of_its_own(tmp_path: Path) -> None:
    config = toml.load(
        options={"also": "tabicl"}, assignments=["tabicl.rows=500", "neural.strategy=ddp", "repeats=1"]
    )
    assert config.model_names == ("trees", "neural", "tabicl") and config.branch("tabicl") == "neural"
    trials = {spec.engine: spec for spec in lay_out_trials(config, 1, 2, "ddp")}
    assert trials["torch"].gang == (0, 1)
    assert (trials["tabicl"].strategy, len(trials["tabicl"].gang)) == ("single", 1)
    found = {
        device: resolve(
            config, preset="fast", strategy="ddp", size=SIZE, device=device, tree_device=lambda engine: "cpu"
        )
        for device in ("cpu", "cuda:0")
    }
    on_cpu = found["cpu"].of("tabicl")
    assert isinstance(on_cpu, ContextParameters)
    assert (on_cpu.rows, on_cpu.columns, on_cpu.estimators) == (500, 2_000, 4)
    again = tmp_path / "run.toml"
    again.write_text(toml.dump(found["cuda:0"].config))
    assert toml.load(file=again) == found["cuda:0"].config
    assert toml.load(file=again).section("tabicl").model_dump() == found["cuda:0"].of("tabicl").model_dump()


def test_what_it_lacks_is_refused_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown key 'tabicl.chekpoint'. Did you mean 'tabicl.checkpoint'"
    ):
        toml.load(assignments=["tabicl.chekpoint=a"])
    monkeypatch.setattr("sparkgpu.core.config.registry.engines.find_spec", lambda name: None)
    asked = {"models": ["tabicl"]}
    with pytest.raises(DeviceError) as missing:
        check_engines(toml.load(options=asked))
    assert str(missing.value) == (
        "model 'tabicl': its engine tabicl is not installed here. Run `pip install 'sparkgpu[tabicl]'`."
    )
    monkeypatch.setattr("sparkgpu.core.config.registry.engines.find_spec", lambda name: object())
    file = tmp_path / "none.ckpt"
    with pytest.raises(ConfigError) as absent:
        check_engines(toml.load(options=asked, assignments=[f"tabicl.checkpoint={json.dumps(str(file))}"]))
    assert str(absent.value) == (
        f"model 'tabicl': its checkpoint {file} is no file. Give the path of its weights, or leave it out "
        "for the published ones."
    )
