"""What may change in a resumed run, and what it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.files import write_json, write_text
from sparkgpu.core.rundir.paths import RunPaths, clear_unfinished
from sparkgpu.runs.folder import for_cpu, resumed_config


@pytest.fixture
def stopped(tmp_path: Path) -> RunPaths:
    """A run of two repeats on two GPUs."""
    paths = RunPaths(root=tmp_path / "run")
    options = {"data.target": "y", "devices.gpus": ["0", "1"], "neural.strategy": "single", "seed": 3}
    write_text(paths.config, config_io.dump(config_io.load(options=options)))
    lane = LanePlan(
        index=0, device="cuda:0", cuda_visible_devices="0", device_name="", threads=1, tree_threads=1,
        neural_threads=1, heap_bytes=1, port_base=1,
    )  # fmt: skip
    trials = tuple(
        TrialSpec(
            name=f"neural-s{seed}", model="neural", engine="torch", seed=seed, fold=None, lane=0, gang=(0,)
        )
        for seed in (3, 4)
    )
    write_json(paths.plan, Plan(preset="fast", lanes=(lane,), trials=trials, reasons={}))
    return paths


def test_it_goes_on_with_its_own_configuration_and_as_many_repeats(stopped: RunPaths) -> None:
    found = resumed_config(stopped.root, {"data.target": None})
    assert (found.seed, found.data.target, found.repeats) == (3, "y", 2)
    assert found.devices.gpus == ("0", "1")


def test_it_may_go_on_elsewhere(stopped: RunPaths) -> None:
    found = resumed_config(stopped.root, {"devices.cpu_lanes": 4, "neural.strategy": "fsdp"})
    assert (found.devices.gpus, found.devices.cpu_lanes, found.neural.strategy) == (None, 4, "fsdp")


def test_intervals_may_be_asked_for_later(stopped: RunPaths) -> None:
    assert resumed_config(stopped.root, {}).intervals is None
    assert resumed_config(stopped.root, {"intervals": 0.9}).intervals == 0.9


def test_what_is_left_of_trees_that_began_on_a_gpu_can_grow_on_a_cpu(stopped: RunPaths) -> None:
    begun = config_io.load(options={"trees.tree_method": "gpu_hist", "trees.max_depth": 9})
    left = for_cpu(begun)
    assert (left.trees.tree_method, left.trees.max_depth) == ("hist", 9)
    exact = config_io.load(options={"trees.tree_method": "exact"})
    assert for_cpu(exact) == exact


def test_another_run_is_refused(stopped: RunPaths) -> None:
    assert resumed_config(stopped.root, {"data.target": "y", "seed": 3}).seed == 3  # as it was begun
    with pytest.raises(ConfigError, match=r"data\.target cannot change in a resumed run; only devices, the"):
        resumed_config(stopped.root, {"data.target": "z"})
    with pytest.raises(ConfigError, match=r"/none: it holds no run\.toml\. Give the folder of a run\."):
        resumed_config(stopped.root / "none", {})


def test_what_was_half_done_is_removed_and_the_rest_kept(stopped: RunPaths) -> None:
    for kept in ("trials/a/DONE", "trials/a/fit.json", "trials/b/checkpoints/epoch-00001-step-0000000/x"):
        write_text(stopped.root / kept, "")
    for gone in ("table/split=train/part-0.parquet", "pipeline/metadata", "trials/b/error.json",
                 "trials/b/.x.7", "lanes/0/trees.events.jsonl", "lanes/0/error.json",
                 "metrics.json"):  # fmt: skip
        write_text(stopped.root / gone, "")
    clear_unfinished(stopped)
    left = sorted(str(file.relative_to(stopped.root)) for file in stopped.root.rglob("*") if file.is_file())
    assert left == [
        "plan.json", "run.toml", "trials/a/DONE", "trials/a/fit.json",
        "trials/b/checkpoints/epoch-00001-step-0000000/x",
    ]  # fmt: skip


def test_a_finished_trial_whose_files_are_damaged_since_is_trained_again(stopped: RunPaths) -> None:
    for name in ("whole", "damaged"):
        for file in ("predictions.parquet", "fit.json", "model.ubj"):
            write_text(stopped.trial(name).root / file, file)
        stopped.trial(name).finish()
    (model := stopped.trial("damaged").root / "model.ubj").write_text("mod")
    assert clear_unfinished(stopped) == [f"{model} is damaged or gone, so damaged is trained again"]
    assert stopped.trial("whole").done.exists() and not stopped.trial("damaged").done.exists()


@pytest.mark.parametrize("saved", [True, False])
def test_a_table_is_kept_and_made_as_it_was_if_its_pipeline_was_saved(stopped: RunPaths, saved: bool) -> None:
    write_text(stopped.schema, "{}")
    if saved:
        write_text(stopped.pipeline / "metadata", "")
    clear_unfinished(stopped)
    assert stopped.table.exists() == saved
    assert resumed_config(stopped.root, {}).prepare.by == ("spark" if saved else "auto")
