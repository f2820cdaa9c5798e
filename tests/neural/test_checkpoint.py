"""When a training writes a checkpoint, and what it need not import without one."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import parameters

from sparkgpu.core.errors import TrialError
from sparkgpu.neural.nets.network import InputShape, build_net
from sparkgpu.neural.rows.resident import ResidentRows, ResidentSource
from sparkgpu.neural.strategies.base import RankPlace, Strategy
from sparkgpu.neural.training.checkpoint import Checkpoints, TrainingState
from sparkgpu.neural.training.objective import Objective
from sparkgpu.neural.training.optimizer import Recipe, make_optimizer
from sparkgpu.neural.training.precision import Precision
from sparkgpu.neural.training.train import Training

CPU = torch.device("cpu")
ALONE = Strategy(RankPlace(device=CPU, precision=Precision(device_type="cpu", dtype=None)))


@pytest.mark.parametrize(("minutes", "seconds"), [(10.0, 10.0), (0.05, 3.0)])
def test_an_epoch_leaves_a_checkpoint_once_the_last_is_old_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float, seconds: float
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    checkpoints = Checkpoints(tmp_path, minutes=minutes, request=tmp_path / "request")
    now += seconds - 0.1
    assert not checkpoints.due(ALONE) and not checkpoints.due(ALONE, step=50)
    now += 0.2
    assert checkpoints.due(ALONE)
    assert checkpoints.due(ALONE, step=50) == (seconds < 10.0)
    assert not checkpoints.due(ALONE, step=51)


def test_one_that_is_asked_for_is_left_at_once(tmp_path: Path) -> None:
    request = tmp_path / "request"
    checkpoints = Checkpoints(tmp_path, minutes=10.0, request=request)
    assert not checkpoints.due(ALONE)
    request.touch()
    assert checkpoints.due(ALONE) and checkpoints.due(ALONE, step=0)


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


class Told:
    """A strategy in this process that notes when slow work goes on."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.slow: list[str] = []
        strategy = Strategy(RankPlace(device=CPU, precision=Precision(device_type="cpu", dtype=dtype)))

        @contextmanager
        def slowly() -> Iterator[None]:
            self.slow.append("begin")
            yield
            self.slow.append("end")

        strategy.slow_work = slowly
        torch.manual_seed(0)
        config = parameters()
        strategy.spread(
            build_net(config, InputShape(num_numeric=4, num_levels=(), num_outputs=2)),
            Objective(task="binary"),
        )
        self.strategy = strategy

    def train(self, checkpoints: Checkpoints, **settings: Any) -> TrainingState:
        random = torch.Generator().manual_seed(1)
        rows = ResidentRows(
            numeric_NG=torch.randn(128, 4, generator=random),
            codes_NK=torch.zeros(128, 0, dtype=torch.int32),
            target_N=torch.arange(128) % 2,
            weight_N=None,
        )
        return Training(
            strategy=self.strategy, source=ResidentSource(rows=rows), valid_rows=rows,
            config=parameters(**settings), recipe=Recipe(), seed=7,
            report=lambda done, epoch, value: None, checkpoints=checkpoints,
        ).run()  # fmt: skip


def test_the_scale_of_float16_losses_goes_on_where_it_was(tmp_path: Path) -> None:
    first, then = Told(torch.float16), Told(torch.float16)
    assert first.strategy.scaler is not None and then.strategy.scaler is not None
    first.strategy.scaler.load_state_dict({**first.strategy.scaler.state_dict(), "scale": 1024.0})
    checkpoints = Checkpoints(tmp_path, minutes=0.0)
    optimizers = [make_optimizer(told.strategy.net, parameters(), Recipe()) for told in (first, then)]
    checkpoints.save(first.strategy, optimizers[0], TrainingState(epoch=1))
    checkpoints.load(then.strategy, optimizers[1])
    assert then.strategy.scaler.get_scale() == 1024.0


def test_a_training_with_a_checkpoint_of_another_version_begins_anew_and_says_so(tmp_path: Path) -> None:
    fresh = Told().train(Checkpoints(tmp_path / "none", minutes=10.0), epochs=2)
    Told().train(Checkpoints(tmp_path, minutes=0.0), epochs=1)
    progress = max(tmp_path.rglob("progress.json"))
    progress.write_text(progress.read_text().replace('"ended"', '"micro_rows": 16, "ended"'))
    found = Told().train(Checkpoints(tmp_path, minutes=10.0), epochs=2)
    assert [point.valid for point in found.curve] == [point.valid for point in fresh.curve]
    assert found.notes == ["begun anew: its checkpoint is of another version of sparkgpu"]


def test_saving_and_reading_count_as_slow_work_and_steps_do_not(tmp_path: Path) -> None:
    told = Told()
    saved: list[int] = []
    checkpoints = Checkpoints(tmp_path, minutes=0.0)
    save = checkpoints.save

    def noted(*given: Any) -> None:
        saved.append(told.slow.count("begin") - told.slow.count("end"))
        save(*given)

    checkpoints.save = noted  # type: ignore[method-assign]
    told.train(checkpoints, epochs=2, patience=1)
    assert saved and set(saved) == {1}  # inside the block
    assert told.slow.count("begin") == told.slow.count("end")


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
    Told().train(Checkpoints(tmp_path, minutes=1e-9), epochs=3)
    newest = max(tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 2
    (shard,) = newest.glob("*.distcp")
    shard.write_bytes(shard.read_bytes()[:-100] + bytes(100))
    found = Told().train(Checkpoints(tmp_path, minutes=10.0), epochs=4)
    fresh = Told().train(Checkpoints(tmp_path / "none", minutes=10.0), epochs=4)
    assert [point.valid for point in found.curve] == [point.valid for point in fresh.curve]
    assert found.notes[0] == "continued from an older checkpoint, since the newest is damaged"


@pytest.mark.parametrize("what", ["metadata", "value"])
def test_a_checkpoint_from_somebody_else_runs_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Told().train(Checkpoints(tmp_path / "c", minutes=1e-9), epochs=1)
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
        Told().train(Checkpoints(tmp_path / "c", minutes=10.0), epochs=2)
    assert not (tmp_path / "planted").exists()
