"""Trials of several ranks on this machine, and what happens to their ranks while they train."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from planted import Outcome, TrialSpec, fit
from safetensors.torch import load_file

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.neural.launchers.heartbeat import Sign, read_sign

Table = tuple[RunPaths, TableSchema]
SETTINGS: dict[str, Any] = {"epochs": 20, "dropout": 0.2, "checkpoint_minutes": 1e-6}  # one each epoch


def gang(
    table: Table, name: str, strategy: str = "ddp", *, nodes: int = 1, ranks: int = 2, **settings: Any
) -> Outcome:
    """One trial with `ranks` CPU lanes on each of `nodes` machines."""
    paths, schema = table
    spec = TrialSpec.model_validate(
        {
            "name": name, "model": "neural", "engine": "torch", "seed": 7, "fold": None, "lane": 0,
            "gang": tuple(range(ranks)), "strategy": strategy, "nodes": nodes,
        }
    )  # fmt: skip
    return fit(paths, schema, spec=spec, **{**SETTINGS, **settings})


def when_training(
    folder: Path, act: Callable[[list[Sign]], None], *, ranks: int = 2, attempt: int = 0
) -> threading.Thread:
    """Do something to the ranks of an attempt in a gang's folder after each has taken some steps."""

    def wait() -> None:
        deadline = time.monotonic() + 150
        while time.monotonic() < deadline:
            signs = [
                sign for rank in range(ranks) if (sign := read_sign(folder / f"attempt-{attempt}", rank))
            ]
            if len(signs) == ranks and all(sign.is_training and sign.beats > 20 for sign in signs):
                act(signs)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def weights(outcome: Outcome) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(outcome.folder / "model.safetensors")
    return found
