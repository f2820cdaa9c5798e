"""A trial from table to files, on small tables with a planted relation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import fit, lane_on, plant

from sparkgpu.core.errors import DeviceError, TrialError
from sparkgpu.core.table.rows import read_rows
from sparkgpu.neural.engine import usable_device
from sparkgpu.neural.model import load_model

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "mlp": {},
    "resnet": {"hidden": (32, 32)},
    "modernnca": {"hidden": (16, 32), "embedding_dim": 8},
    "realmlp": {"hidden": (32, 32)},
    "tabm": {"hidden": (32, 16), "members": 4, "num_bins": 16, "embedding_dim": 4},
    "tabm, cosine": {
        "architecture": "tabm", "hidden": (32, 16), "members": 4, "num_bins": 16, "embedding_dim": 8,
        "number_embedding": "cosine", "muon_learning_rate": 0.01,
    },
}  # fmt: skip


def test_a_card_that_torch_has_no_code_for_is_named_before_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80"])
    with pytest.raises(
        DeviceError, match=r"for whose compute capability 7\.0 torch 2\S+ has no code\. `sparkgpu"
    ):
        usable_device(lane_on("cuda:0"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 9))
    assert usable_device(lane_on("cuda:0")) == torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("task", "architecture"),
    [*(("binary", name) for name in ARCHITECTURES), ("multiclass", "tabm"), ("multiclass", "modernnca"),
     ("regression", "realmlp"), ("regression", "tabm"), ("regression", "modernnca"),
     *(pytest.param("regression", name, marks=pytest.mark.slow) for name in ("mlp", "resnet")),
     pytest.param("regression", "tabm, cosine", marks=pytest.mark.slow)],
)  # fmt: skip
def test_the_network_learns_a_planted_relation_and_its_files_predict_the_same(
    task: str, architecture: str, tmp_path: Path, device: str
) -> None:
    paths, schema = plant(tmp_path, task)
    settings = {"architecture": architecture, **ARCHITECTURES[architecture]}
    found = fit(paths, schema, device, **{"epochs": 25 if task == "regression" else 12, **settings})
    valid, last = read_rows(paths, schema, "valid", features=False), found.column("valid")[-1]
    if task == "regression":  # in its own unit
        assert found.r2() > 0.85
        rmse = float(np.sqrt(np.mean((found.predictions["valid"][1] - valid.label_N) ** 2)))
        assert last == pytest.approx(rmse, rel=1e-4)
    else:
        assert found.accuracy() > 0.85
        for row_id_N, values_NC in found.predictions.values():
            np.testing.assert_allclose(values_NC.sum(axis=1), 1.0, atol=1e-12)
            assert values_NC.min() >= 0 and (np.diff(row_id_N) > 0).all()
    metric = "rmse" if task == "regression" else "log_loss"
    assert found.curve[0] == ["step", "elapsed_s", "metric", "train", "valid"]
    assert {line[2] for line in found.curve[1:]} == {metric}
    loaded = load_model(found.folder, device).predict(read_rows(paths, schema, "test"))
    np.testing.assert_array_equal(loaded, found.test)
    saved = json.loads((found.folder / "model.json").read_text())
    assert saved["numeric"] == ["skewed", "gappy", "constant"]
    assert saved["numeric_with_indicator"] == ["gappy"]
    assert saved["categorical"] == [{"name": "word", "levels": ["red", "green", "blue"]}]
    assert tuple(saved["classes"]) == schema.classes


def test_the_same_seed_gives_the_same_predictions_bit_for_bit_and_another_seed_others(tmp_path: Path) -> None:
    paths, schema = plant(tmp_path, "binary")
    settings = {"architecture": "realmlp", "dropout": 0.1, "epochs": 3}  # whose start draws numbers, too
    first, again = (fit(paths, schema, name=name, **settings) for name in ("first", "again"))
    other = fit(paths, schema, name="other", seed=8, **settings)
    assert (first.test == again.test).all() and first.column("valid") == again.column("valid")
    assert not (first.test == other.test).all()


@pytest.mark.process
def test_more_threads_change_no_bit_where_mkl_is_told_so() -> None:
    """A lane's network takes the cores of its trees when they end, in the middle of training.

    Without the setting, MKL splits some products (here the output layer's weight gradient) differently with
    two threads.
    """
    code = """
import torch
from sparkgpu.core.config.parameters import NeuralParameters
from sparkgpu.neural.nets.network import InputShape, build_net
def gradients(threads):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = NeuralParameters(
        architecture="mlp", hidden=(256, 256), dropout=0.0, epochs=1, batch_size=1024, micro_batch_size=1024,
        learning_rate=1e-3, schedule="constant", weight_decay=0.0, patience=0,
    )
    net = build_net(config, InputShape(num_numeric=54, num_levels=(40,), num_outputs=7))
    out = net(torch.randn(1024, 54), torch.randint(-1, 40, (1024, 1), dtype=torch.int32)).squeeze(1)
    torch.nn.functional.cross_entropy(out, torch.randint(0, 7, (1024,))).backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    return [norm, *(parameter.grad for parameter in net.parameters())]
print(all(map(torch.equal, gradients(1), gradients(2))))
"""
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MKL_CBWR": "AUTO,STRICT"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "True\n"


def test_without_patience_all_epochs_run(tmp_path: Path, device: str) -> None:
    found = fit(*plant(tmp_path, "binary", rows=300), device, epochs=30, patience=0, learning_rate=0.05)
    assert found.column("step") == list(range(1, 31))
    assert found.record.best_iteration == 1 + int(np.argmin(found.column("valid")))
    assert found.record.native_parameters["kept_epoch"] == "30"


def test_with_patience_training_ends_in_time_and_the_best_epoch_is_kept(tmp_path: Path, device: str) -> None:
    random = np.random.default_rng(0)
    noise_N = random.integers(0, 2, 500)  # nothing to learn but the noise itself
    paths, schema = plant(tmp_path, "binary", rows=500, label_N=noise_N)
    found = fit(paths, schema, device, epochs=200, patience=3, learning_rate=0.02)
    valid = found.column("valid")
    best = 1 + int(np.argmin(valid))
    assert found.record.best_iteration == best and len(valid) == best + 3
    label_N = read_rows(paths, schema, "valid", features=False).label_N
    probability_N = found.predictions["valid"][1][np.arange(len(label_N)), label_N]
    assert -np.log(probability_N).mean() == pytest.approx(min(valid), rel=1e-5)


def test_weights_decide_between_contradicting_rows(tmp_path: Path, device: str) -> None:
    label_N = np.arange(1200) // 5 % 2
    weight_N = np.where(label_N == 1, 9.0, 1.0)
    found = fit(*plant(tmp_path, "binary", rows=1200, label_N=label_N, weight_N=weight_N), device, epochs=4)
    assert found.test[:, 1].mean() == pytest.approx(0.9, abs=0.05)


def test_categories_never_seen_and_missing_values_are_predicted_as_missing(
    tmp_path: Path, device: str
) -> None:
    random = np.random.default_rng(5)
    words_N = random.choice(np.array(["red", "green", "blue", None], dtype=object), 1500)
    words_N[4::25] = "never seen before"  # in test rows alone
    found = fit(*plant(tmp_path, "binary", words_N=words_N), device)
    assert np.isfinite(found.test).all()
    model = load_model(found.folder)
    raw_BF = torch.tensor([[1.0, 0.0, 2.5], [float("nan")] * 3])
    out = model(raw_BF, torch.tensor([[-1], [-1]], dtype=torch.int32))
    assert out.isfinite().all()


def test_a_column_of_many_categories_is_learned(tmp_path: Path, device: str) -> None:
    levels = tuple(f"shop {i}" for i in range(150))
    random = np.random.default_rng(4)
    words_N = random.choice(levels, 3000)
    label_N = np.array([int(word.split()[1]) % 2 for word in words_N])
    found = fit(
        *plant(tmp_path, "binary", rows=3000, words_N=words_N, levels=levels, label_N=label_N), device
    )
    assert found.accuracy() > 0.9


def test_each_fold_is_validated_on_its_own_rows(tmp_path: Path) -> None:
    paths, schema = plant(tmp_path, "binary", rows=600, folds=3)
    found = [fit(paths, schema, name=f"neural-f{fold}", fold=fold, epochs=1) for fold in range(3)]
    validated = np.concatenate([outcome.predictions["valid"][0] for outcome in found])
    assert sorted(validated) == [i for i in range(600) if i % 5 != 4]
    assert all(len(outcome.test) == 120 for outcome in found)


def test_the_parent_hears_of_phases_and_progress(tmp_path: Path) -> None:
    found = fit(*plant(tmp_path, "binary", rows=300), epochs=2)
    assert [event.text for event in found.events if event.kind == "phase"] == [
        "reading the table", "training", "predicting",
    ]  # fmt: skip
    progress = [event for event in found.events if event.kind == "progress"]
    assert progress[0].done is not None and progress[0].done < 1
    last = progress[-1]
    assert (last.trial, last.done, last.step, last.metric) == ("neural-s7", 1.0, 2, "log_loss")
    assert last.value == pytest.approx(found.column("valid")[-1])
    assert len(progress) < 10


def test_the_record_proves_the_device(tmp_path: Path, device: str) -> None:
    record = fit(*plant(tmp_path, "binary", rows=300), device, epochs=2).record
    proof = record.device_proof
    assert proof["device"] == device and proof["parameters_device"] == [device]
    assert proof["torch"] == torch.__version__ and proof["threads"] == 1
    assert record.train_rows == 180 and record.train_rows_per_s > 0 and record.peak_host_bytes > 2**20
    assert (record.peak_device_bytes is None) == (device == "cpu")
    assert record.parameters["hidden"] == [32]


@pytest.mark.slow
def test_a_compiled_network_learns_the_same(tmp_path: Path, device: str) -> None:
    paths, schema = plant(tmp_path, "binary", rows=600)
    plain = fit(paths, schema, device, dropout=0.1, epochs=2)
    compiled = fit(paths, schema, device, dropout=0.1, epochs=2, name="compiled", compile=True)
    np.testing.assert_allclose(compiled.test, plain.test, atol=1e-4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_asked_for_and_absent_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(DeviceError) as refused:
        fit(*plant(tmp_path, "binary", rows=100), "cuda:3")
    assert str(refused.value) == (
        f"lane 0 trains its network on cuda:3 (NVIDIA H200), but torch {torch.__version__} finds no usable "
        "GPU (CUDA_VISIBLE_DEVICES=3). Install a CUDA build of torch that fits the driver, or ask for CPU "
        "lanes with --cpu-lanes 1."
    )


def test_a_network_that_diverges_is_refused_with_a_way_out(tmp_path: Path) -> None:
    paths, schema = plant(tmp_path, "regression", rows=300)
    with pytest.raises(TrialError) as refused:
        fit(paths, schema, learning_rate=1e30, epochs=3)
    assert str(refused.value) == (
        "neural-s7: the network diverged: its rmse is nan after epoch 1. "
        "Lower neural.learning_rate (now 1e+30)."
    )
