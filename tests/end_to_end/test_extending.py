"""Another package adds an engine, a network, a format and a metric; `sparkgpu run` finds them by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

OUTSIDE = Path(__file__).parent / "outside"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(OUTSIDE), os.environ.get("PYTHONPATH", "")])}


def sparkgpu(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sparkgpu", *map(str, arguments)],
        env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip


@pytest.mark.spark
def test_engine_network_format_and_metric_of_another_package_are_run_by_name(
    wine: Path, tmp_path: Path
) -> None:
    table = tmp_path / "wine.feather"
    pyarrow.feather.write_feather(pq.read_table(wine), table)
    run = sparkgpu(
        "run", table, "--target", "target", "--cpu-lanes", "1", "--out", tmp_path / "out",
        "--set", "trees.engine=toy-forest", "--set", "trees.ntrees=50",
        "--set", "neural.architecture=toy-linear", "--set", "calibrate=false",
        "--set", "report.level=short", "--metric", "toy-cost", "--json", "--also", "toy-neighbours",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert json.loads(run.stdout) == metrics and "toy-cost" in run.stderr
    assert metrics["comparison"]["metric"] == "toy-cost"
    costs = {model["name"]: model["metrics"]["valid"]["toy-cost"] for model in metrics["models"]}
    assert costs[metrics["comparison"]["leader"]] == min(costs.values())
    assert any("toy-cost chose" in caveat for caveat in metrics["comparison"]["caveats"])
    assert [trial["engine"] for trial in metrics["trials"]] == [
        "toy-forest",
        "torch",
        "toy-neighbours",
    ]
    for model in metrics["models"]:
        assert model["metrics"]["test"]["accuracy"] > 0.85, model
    assert "toy-linear" in (tmp_path / "out" / "run.toml").read_text()
    load = """
import sys; from pathlib import Path; import numpy as np
from sparkgpu.core.config.registry.engines import ENGINES; from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import read_rows; from sparkgpu.core.table.schema import read_schema
run = RunPaths(root=Path(sys.argv[1])); schema = read_schema(run)
for engine, trial in (("toy-forest", "trees-s7"), ("toy-neighbours", "toy-neighbours-s7")):
    model = ENGINES.find(engine).loaded().load(run.trial(trial).root, schema)
    np.save(sys.argv[2] + "/" + trial, model.predict(read_rows(run, schema, "test")))
"""
    subprocess.run(
        [sys.executable, "-c", load, str(tmp_path / "out"), str(tmp_path)], env=ENVIRONMENT, check=True
    )
    for trial in ("trees-s7", "toy-neighbours-s7"):
        kept = pq.read_table(tmp_path / "out" / "trials" / trial / "predictions.parquet").to_pandas()
        kept = kept[kept["split"] == "test"].sort_values("row_id").filter(like="probability")
        assert np.array_equal(np.load(tmp_path / f"{trial}.npy"), kept.to_numpy())
    card = tmp_path / "out" / "report" / "cards" / "toy-neighbours" / "MODEL_CARD.md"
    assert "- weights of toy-neighbours: neighbours.txt; licence: Apache-2.0" in card.read_text()


def test_the_pyproject_of_the_docs_enters_what_the_package_does() -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    project = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])["project"]
    (installed,) = distributions(name=project["name"], path=[str(OUTSIDE)])
    assert project["version"] == installed.version
    found = {(one.group, one.name): one.value for one in installed.entry_points}
    groups = project["entry-points"].items()
    given = {(group, name): value for group, entries in groups for name, value in entries.items()}
    assert given and given.items() <= found.items()


def test_a_name_that_nobody_brings_is_refused_with_all_that_are_there(tmp_path: Path) -> None:
    run = sparkgpu("run", "--set", "trees.engine=toy-forrest", "--out", tmp_path / "out")
    assert run.returncode == 2
    assert run.stderr == (
        'sparkgpu: configuration: trees.engine = "toy-forrest" does not fit: choose one of h2o-xgboost, '
        "xgboost, lightgbm, catboost, toy-forest. Did you mean 'toy-forest'?\n"
    )


def test_an_entry_point_that_leads_elsewhere_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "wrong-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[sparkgpu.networks]\nwrong = json:dumps\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from sparkgpu.core.config.registry.networks import NETWORKS; NETWORKS.find('wrong')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.stderr.splitlines()[-1] == (
        "ValueError: the entry point 'wrong' of sparkgpu.networks (json:dumps) is not a NetworkEntry of that "
        "name"
    )
