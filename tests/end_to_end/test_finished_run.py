"""One real run with two lanes: its files, its output, and its processes while it ran."""

from __future__ import annotations

import csv
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from running import Running, finished, write_adult

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.host.reservations import BLOCK
from sparkgpu.core.plan.plan import LanePlan, Plan
from sparkgpu.core.rundir.files import read_json
from sparkgpu.core.rundir.paths import LanePaths, RunPaths, TrialPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.schema import read_schema

pytestmark = pytest.mark.spark

TRIALS = ("trees-s7", "neural-s7", "trees-s8", "neural-s8")
METRICS = ("roc_auc", "average_precision", "log_loss", "brier", "accuracy", "f1")
ROWS = 8_000


@pytest.fixture(scope="module")
def adult(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, float]:
    return write_adult(tmp_path_factory.mktemp("adult"))


@pytest.fixture(scope="module")
def run(adult: tuple[Path, str, float], tmp_path_factory: pytest.TempPathFactory) -> Running:
    """``sparkgpu run <adult> --target income --cpu-lanes 2`` with few trees and epochs, after its end."""
    folder = tmp_path_factory.mktemp("run")
    file, target, _ = adult
    pq.write_table(pq.read_table(file).slice(0, ROWS), folder / "adult.parquet")
    return finished(
        [
            Path(sys.executable).with_name("sparkgpu"), "run", folder / "adult.parquet", "--target", target,
            "--cpu-lanes", "2", "--set", "trees.ntrees=40", "--set", "neural.epochs=3",
        ],
        folder / "out", folder,
    )  # fmt: skip


@pytest.fixture(scope="module")
def paths(run: Running) -> RunPaths:
    return run.paths


@pytest.fixture(scope="module")
def metrics(run: Running) -> dict[str, Any]:
    return run.metrics


def model(metrics: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(model for model in metrics["models"] if model["name"] == name)
    return found


def test_the_run_directory_holds_what_the_contract_lists(paths: RunPaths) -> None:
    found = {path.name for path in paths.root.iterdir()}
    assert found == {
        "run.toml", "run.schema.json", "plan.json", "env.json", "table", "pipeline", "lanes", "trials",
        "telemetry.csv", "metrics.json", "profile.json", "explanations.json", "report",
    }  # fmt: skip
    has_means = any(feature.means_of for feature in read_schema(paths).features)
    assert {path.name for path in paths.table.iterdir()} == {
        "split=train", "split=valid", "split=test", "schema.json", *(["target_means"] if has_means else []),
    }  # fmt: skip
    assert {path.name for path in (paths.root / "lanes").iterdir()} == {"0", "1"}
    assert {path.name for path in (paths.root / "trials").iterdir()} == set(TRIALS)
    for name in TRIALS:
        trial = paths.trial(name)
        files = {path.name for path in trial.root.iterdir()}
        assert {"predictions.parquet", "fit.json", "learning_curve.csv", "DONE"} < files
        assert "error.json" not in files
        assert FitRecord.model_validate(read_json(trial.fit)).trial == name
    assert {"index.html", "report.md", "metrics.csv"} < {path.name for path in paths.report.iterdir()}
    assert [path for path in paths.root.rglob(".*") if "pipeline" not in path.parts] == []  # temporary files


def test_it_prints_the_plan_the_progress_of_both_branches_and_the_result(run: Running) -> None:
    assert run.stderr == ""
    for text in (
        "lane 0 ", "lane 1 ", "repeats   2, one for each lane", "lane 0 trees: training (trees-s7)",
        "lane 1 neural: training (neural-s8)", "ROC AUC", "blend", "index.html",
    ):  # fmt: skip
        assert text in run.stdout
    assert not re.search(r"WARN|Parse progress|H2O_cluster|Traceback", run.stdout)
    assert "H2O_cluster" in run.paths.lane(0).log.read_text(encoding="utf-8")  # it went to the log


def test_the_resolved_configuration_holds_every_parameter(paths: RunPaths) -> None:
    found = config_io.load(file=paths.config)
    assert (found.seed, found.preset, found.data.task, found.devices.cpu_lanes) == (7, "fast", "binary", 2)
    assert (found.trees.ntrees, found.neural.epochs) == (40, 3)
    assert None not in found.trees.model_dump().values()
    neural = found.neural.model_dump(exclude={"model_parallel"})  # of tp, pp and their hybrids
    assert None not in neural.values()
    assert "auto" not in (found.trees.tree_method, found.neural.strategy)


def test_the_plan_gives_each_lane_ports_and_cores_of_its_own(paths: RunPaths) -> None:
    plan = Plan.model_validate(read_json(paths.plan))
    first, second = plan.lanes
    assert abs(first.port_base - second.port_base) >= BLOCK
    assert (first.device, second.device) == ("cpu", "cpu")
    assert tuple(trial.name for trial in plan.trials) == TRIALS
    assert {"repeats", "memory", "strategy", "preset"} <= plan.reasons.keys()
    assert (plan.prepared_by, "Spark's pipeline" in plan.reasons["prepare"]) == ("spark", True)
    for lane in plan.lanes:
        assert lane.context == "spark + h2o"
        written = LanePaths(root=paths.root / "lanes" / str(lane.index))
        assert LanePlan.model_validate(read_json(written.lane)) == lane
        assert written.log.stat().st_size > 0


def test_two_h2o_contexts_were_alive_at_the_same_time_on_ports_of_their_own(run: Running) -> None:
    bases = set(run.port_bases)
    assert len(bases) == 2
    for port in (0, 3):  # of H2O, and of Spark's driver
        assert any({base + port for base in bases} <= ports for ports in run.seen.together)
    assert all(run.seen.owners[base] == run.seen.owners[base + 3] for base in bases), "one JVM in each lane"
    assert len({run.seen.owners[base] for base in bases}) == 2


def test_nothing_listened_but_on_loopback_and_h2o_behind_a_login(run: Running) -> None:
    addresses = {address for address, _ in run.seen.listeners}
    assert len(run.seen.listeners) >= 6  # H2O, Spark's driver and its block manager, twice
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert run.seen.answers == dict.fromkeys(run.port_bases, 401)


def test_logins_were_private_and_never_on_a_command_line_nor_in_a_file_of_the_run(run: Running) -> None:
    passwords = {password for _, password in run.seen.logins.values()}
    assert len(passwords) == len(run.seen.logins) == 2
    for mode, password in run.seen.logins.values():
        assert mode == stat.S_IRUSR | stat.S_IWUSR
        assert len(password) >= 32
        assert len(password) >= 32
        assert not any(password in command for command in run.seen.commands)
    files = [path for path in run.paths.root.rglob("*") if path.is_file()]
    assert len(files) > 40
    for file in files:
        content = file.read_bytes()
        assert not any(password.encode() in content for password in passwords), file


def test_nothing_is_left_of_it_but_its_folder(run: Running) -> None:
    assert run.left_behind() == []
    assert len(run.scratch_folders) == 5
    assert [folder for folder in run.scratch_folders if folder.exists()] == []


def test_metrics_json_has_the_shape_of_the_contract(metrics: dict[str, Any], run: Running) -> None:
    assert metrics["schema_version"] == 1
    assert {"schema_version", "run", "data", "models", "trials", "comparison", "cost"} <= metrics.keys()
    about = metrics["run"]
    assert {"name", "started_at", "wall_s", "sparkgpu", "versions", "host"} <= about.keys()
    assert about["name"] == run.paths.root.name
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", about["started_at"])
    assert 1 < about["wall_s"] < 300
    assert {"pyspark", "h2o", "torch"} <= about["versions"].keys()
    data = metrics["data"]
    assert (data["task"], len(data["classes"]), data["rows_refused"]) == ("binary", 2, 0)
    assert sum(data["splits"].values()) == data["rows"] == ROWS
    assert data["fingerprint"]
    for name in ("test", "valid"):
        assert data["splits"][name] == pytest.approx(0.15 * ROWS, rel=0.02)
    assert metrics["cost"]["device_hours"] > 0
    assert {"energy_wh", "price"} <= metrics["cost"].keys()


def best_of(trial: TrialPaths) -> int:
    """The number of trees at the least validation metric of the learning curve."""
    with trial.learning_curve.open(encoding="utf-8") as file:
        return int(min(csv.DictReader(file), key=lambda line: float(line["valid"]))["step"])


def test_every_trial_is_entered_with_its_measurements(metrics: dict[str, Any], paths: RunPaths) -> None:
    assert {trial["name"] for trial in metrics["trials"]} == set(TRIALS)
    for trial in metrics["trials"]:
        seed = int(trial["name"].rpartition("-s")[2])
        assert (trial["seed"], trial["lane"], trial["fold"]) == (seed, seed - 7, None)
        assert (trial["status"], trial["devices"], trial["strategy"]) == ("done", ["cpu"], "single")
        assert trial["engine"] == {"trees": "h2o-xgboost", "neural": "torch"}[trial["model"]]
        for split in ("valid", "test"):
            assert tuple(trial["metrics"][split]) == METRICS
        assert trial["fit_s"] > 0
        assert trial["predict_s"] > 0
        assert trial["train_rows_per_s"] > 0
        assert trial["peak_host_bytes"] > 2**27
        assert trial["peak_device_bytes"] is None
        assert trial["native_parameters"]
        assert trial["device_proof"]
        if trial["model"] == "trees":
            assert trial["native_parameters"]["tree_method"] == "hist"
            assert trial["best_iteration"] == best_of(paths.trial(trial["name"]))


def test_both_branches_learned_in_each_lane(metrics: dict[str, Any], adult: tuple[Path, str, float]) -> None:
    for trial in metrics["trials"]:
        least = adult[2] - (0.02 if trial["model"] == "trees" else 0.06)  # from the first rows of the table
        assert trial["metrics"]["test"]["roc_auc"] > least
    assert len({trial["metrics"]["test"]["log_loss"] for trial in metrics["trials"]}) == 4


def test_the_blend_and_the_comparison_are_there(metrics: dict[str, Any]) -> None:
    blend = model(metrics, "blend")
    assert tuple(blend["metrics"]["test"]) == METRICS
    assert sum(blend["weights"].values()) == pytest.approx(1)
    valid = {name: model(metrics, name)["metrics"]["valid"]["log_loss"] for name in ("trees", "neural")}
    assert blend["metrics"]["valid"]["log_loss"] <= min(valid.values())
    comparison = metrics["comparison"]
    assert comparison["metric"] == "roc_auc"
    assert comparison["leader"] in ("trees", "neural", "blend")
    assert {frozenset((pair["a"], pair["b"])) for pair in comparison["pairs"]} == {
        frozenset(pair) for pair in (("trees", "neural"), ("blend", "trees"), ("blend", "neural"))
    }
    for pair in comparison["pairs"]:
        low, high = pair["ci95"]
        assert low <= pair["difference"] <= high
        expected = "a" if low > 0 else "b" if high < 0 else "tie"
        assert pair["verdict"] == expected


def test_predictions_are_of_the_rows_of_the_table_and_give_the_reported_metrics(
    paths: RunPaths, metrics: dict[str, Any]
) -> None:
    from sklearn.metrics import roc_auc_score

    labels = pq.read_table(paths.split("test"), columns=["row_id", "label"]).to_pandas()
    for trial in metrics["trials"]:
        found = pq.read_table(paths.trial(trial["name"]).predictions).to_pandas()
        assert set(found["split"]) == {"valid", "test"}
        own = found[found["split"] == "test"]
        joined = labels.merge(own, on="row_id", validate="one_to_one")
        assert len(joined) == len(labels) == len(own)
        total = joined["probability_0"] + joined["probability_1"]
        assert np.allclose(total, 1, atol=1e-5)
        expected = roc_auc_score(joined["label"], joined["probability_1"])
        assert trial["metrics"]["test"]["roc_auc"] == pytest.approx(expected, abs=1e-9)


def test_telemetry_covers_the_run(paths: RunPaths, metrics: dict[str, Any]) -> None:
    with paths.telemetry.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[-1]["elapsed_s"]) > 0.5 * metrics["run"]["wall_s"]
    assert max(float(row["rss_bytes"]) for row in rows) > 2**29  # two JVMs and two torch processes


def test_the_report_shows_the_results_offline_and_is_rebuilt_from_the_folder_alone(
    paths: RunPaths, metrics: dict[str, Any], tmp_path: Path
) -> None:
    def files() -> dict[str, bytes]:
        found = [path for path in paths.report.rglob("*") if path.is_file()]
        return {str(path.relative_to(paths.report)): path.read_bytes() for path in found}

    page = (paths.report / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert f"{model(metrics, 'trees')['metrics']['test']['roc_auc']:.4f}" in page
    before = files()
    assert sum(name.endswith(".png") for name in before) >= 3
    assert {f"cards/{model}/MODEL_CARD.md" for model in ("trees", "neural", "blend")} < before.keys()
    shutil.rmtree(paths.report)
    found = subprocess.run(
        [sys.executable, "-m", "sparkgpu", "report", str(paths.root)],
        capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert found.stdout.strip() == str(paths.report / "index.html")
    after = files()
    assert after.keys() == before.keys()
    for name in ("metrics.csv", "roc_curves.png", "learning_curves.png"):  # the rest shows its own time
        assert after[name] == before[name]
