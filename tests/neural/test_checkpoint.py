"""When a training writes a checkpoint, and what it need not import without one."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import alone, parameters
from ranks_equivalence import CASES, spread, train

from sparkgpu.core.errors import TrialError
from sparkgpu.neural.training.checkpoint import Checkpoints, TrainingState
from sparkgpu.neural.training.optimizer import Recipe, make_optimizer


@pytest.mark.parametrize(("minutes", "seconds"), [(10.0, 10.0), (0.05, 3.0)])
def test_an_epoch_leaves_a_checkpoint_once_the_last_is_old_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float, seconds: float
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    checkpoints = Checkpoints(tmp_path, minutes=minutes, request=tmp_path / "request")
    now += seconds - 0.1
    assert not checkpoints.due(alone()) and not checkpoints.due(alone(), step=50)
    now += 0.2
    assert checkpoints.due(alone())
    assert checkpoints.due(alone(), step=50) == (seconds < 10.0)
    assert not checkpoints.due(alone(), step=51)


def test_one_that_is_asked_for_is_left_at_once(tmp_path: Path) -> None:
    request = tmp_path / "request"
    checkpoints = Checkpoints(tmp_path, minutes=10.0, request=request)
    assert not checkpoints.due(alone())
    request.touch()
    assert checkpoints.due(alone()) and checkpoints.due(alone(), step=0)


def test_steps_are_those_of_torchs_adamw_bit_for_bit() -> None:
    config = parameters(learning_rate=0.01, weight_decay=0.1)
    found, expected = (torch.nn.Linear(5, 3) for _ in range(2))
    expected.load_state_dict(found.state_dict())
    optimizers = (
        make_optimizer(found, config, Recipe()),
        torch.optim.AdamW(expected.parameters(), lr=0.01, weight_decay=0.1, fused=True),
    )
    random = torch.Generator().manual_seed(0)
    for _ in range(5):
        x = torch.randn(7, 5, generator=random)
        for net, optimizer in zip((found, expected), optimizers, strict=True):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
    for ours, theirs in zip(found.parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def training(folder: Path, epochs: int) -> TrainingState:
    """One that leaves a checkpoint in the folder after each epoch, and begins at the one that is there."""
    checkpoints = Checkpoints(folder, minutes=1e-9)
    return train(spread(alone(), parameters()), parameters(epochs=epochs), checkpoints=checkpoints)


@pytest.mark.parametrize("case", ["mlp", "tabm", "tabm, odd depth", "resnet", "realmlp", "modernnca"])
def test_a_network_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(tmp_path: Path, case: str) -> None:
    config = parameters(**{**CASES[case], "epochs": 3})

    def trained() -> TrainingState:
        return train(spread(alone(), config), config, checkpoints=Checkpoints(tmp_path, minutes=1e-9))

    whole = trained()
    shutil.rmtree(max(tmp_path.glob("epoch-*")))
    found = trained()
    losses = [[(point.train, point.valid) for point in state.curve] for state in (found, whole)]
    assert losses[0] == losses[1]
    assert found.notes == ["resumed from a checkpoint after epoch 2"]


def test_the_scale_of_float16_losses_goes_on_where_it_was(tmp_path: Path) -> None:
    first, then = (spread(alone(torch.float16), parameters()) for _ in range(2))
    assert first.scaler is not None and then.scaler is not None
    first.scaler.load_state_dict({**first.scaler.state_dict(), "scale": 1024.0})
    checkpoints = Checkpoints(tmp_path, minutes=0.0)
    optimizers = [make_optimizer(strategy.net, parameters(), Recipe()) for strategy in (first, then)]
    checkpoints.save(first, optimizers[0], TrainingState(epoch=1))
    checkpoints.load(then, optimizers[1])
    assert then.scaler.get_scale() == 1024.0


def test_a_training_with_a_checkpoint_of_another_version_begins_anew_and_says_so(tmp_path: Path) -> None:
    fresh = training(tmp_path / "none", 2)
    training(tmp_path / "old", 1)
    progress = max((tmp_path / "old").rglob("progress.json"))
    progress.write_text(progress.read_text().replace('"ended"', '"micro_rows": 16, "ended"'))
    found = training(tmp_path / "old", 2)
    assert [point.valid for point in found.curve] == [point.valid for point in fresh.curve]
    assert found.notes == ["begun anew: its checkpoint is of another version of sparkgpu"]


@pytest.mark.process
def test_a_short_training_loads_neither_torchs_compiler_nor_its_sharded_tensors(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path[:0] = [sys.argv[1]]; from pathlib import Path; import planted;"
        "planted.fit(*planted.plant(Path(sys.argv[2]), 'binary'), epochs=1);"
        "heavy = ('torch._dynamo', 'torch.distributed.tensor', 'sympy');"
        "sys.exit(', '.join(name for name in heavy if name in sys.modules) or 0)"
    )
    arguments = [str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


class Planted:
    """What a pickle runs when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("planted",)


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path: Path) -> None:
    training(tmp_path / "old", 3)
    _, newest = sorted((tmp_path / "old").iterdir())  # two are kept
    (shard,) = newest.glob("*.distcp")
    shard.write_bytes(shard.read_bytes()[:-100] + bytes(100))
    found, fresh = training(tmp_path / "old", 4), training(tmp_path / "none", 4)
    assert [point.valid for point in found.curve] == [point.valid for point in fresh.curve]
    assert found.notes[0] == "continued from an older checkpoint, since the newest is damaged"


@pytest.mark.parametrize("what", ["metadata", "value"])
def test_a_checkpoint_from_somebody_else_runs_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    training(tmp_path / "c", 1)
    folder = max((tmp_path / "c").iterdir())
    if what == "metadata":
        (folder / ".metadata").write_bytes(pickle.dumps(Planted()))
    else:  # a setting of the optimizer, which is no tensor
        from torch.distributed.checkpoint import FileSystemReader, state_dict_saver

        state = {name: Planted() for name in FileSystemReader(folder).read_metadata().state_dict_metadata}
        state_dict_saver.save(state, checkpoint_id=folder, no_dist=True)
    progress = json.loads((folder / "progress.json").read_text())
    (folder / "progress.json").write_text(json.dumps({**progress, "files": {}}))
    with pytest.raises(TrialError, match="the checkpoint cannot be read"):
        training(tmp_path / "c", 2)
    assert not (tmp_path / "planted").exists()
