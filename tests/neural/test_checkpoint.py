"""When a training writes a checkpoint, and what it need not import without one."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from planted import parameters

from sparkgpu.engines.neural.training.checkpoint import Checkpoints
from sparkgpu.engines.neural.training.optimizer import Recipe, make_optimizer


@pytest.mark.parametrize(("minutes", "seconds"), [(10.0, 10.0), (0.05, 3.0)])
def test_an_epoch_leaves_a_checkpoint_once_the_last_is_old_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float, seconds: float
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    checkpoints = Checkpoints(tmp_path, minutes=minutes, request=tmp_path / "request")
    now += seconds - 0.1
    assert not checkpoints.due_after_epoch() and not checkpoints.due(step=50)
    now += 0.2
    assert checkpoints.due_after_epoch()
    assert checkpoints.due(step=50) == (seconds < 10.0)
    assert not checkpoints.due(step=51)


def test_one_that_is_asked_for_is_left_at_once(tmp_path: Path) -> None:
    request = tmp_path / "request"
    checkpoints = Checkpoints(tmp_path, minutes=10.0, request=request)
    assert not checkpoints.due_after_epoch()
    request.touch()
    assert checkpoints.due_after_epoch() and checkpoints.due(step=0)


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
