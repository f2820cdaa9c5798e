"""What docs/text.md shows does what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import COMMAND, REPOSITORY, SMALL

import sparkgpu
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import read_schema
from sparkgpu.predict.export import export
from sparkgpu.predict.mlflow_model import example_of

pytestmark = [pytest.mark.process, pytest.mark.slow]

PAGE = (REPOSITORY / "docs" / "text.md").read_text(encoding="utf-8")
FEW = (*SMALL, "--set", "trees.engine=xgboost", "--cpu-lanes", "1")


def test_the_commands_of_the_page_work_and_every_way_to_predict_reads_the_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    drawn, rows = np.random.default_rng(2), 700
    liked_N = drawn.random(rows) < 0.5
    said = np.where(liked_N, drawn.choice(["fits", "lovely"], rows), drawn.choice(["broke", "poor"], rows))
    other = [" ".join(map(str, words)) for words in drawn.choice(30, (rows, 7))]
    frame = pd.DataFrame({"review": [f"{one} {others}" for one, others in zip(said, other, strict=True)]})
    frame["title"] = [words[:5] for words in other]
    frame["liked"] = np.where(liked_N, "yes", "no")
    frame[:600].to_parquet("reviews.parquet")
    frame[600:].to_parquet("new.parquet")
    (commands,) = re.findall(r"```bash\n(.*?)```", PAGE, re.S)
    for line in commands.splitlines():
        told = subprocess.run(
            [*COMMAND, *shlex.split(line)[1:], *(FEW if " run " in line else ())],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert told.returncode == 0, told.stderr
    found = pd.read_parquet("predictions.parquet")
    truth = frame["liked"][600:].reset_index(drop=True)
    assert (found["prediction"] == truth).mean() > 0.9
    run = tmp_path / "reports" / "reviews"
    assert {feature.source for feature in read_schema(RunPaths(root=run)).features} == {"review", "title"}
    model = sparkgpu.load(run)
    assert (model.predict(frame[600:]) == found["prediction"].to_numpy()).all()
    with pytest.raises(ConfigError, match="cannot read texts, and the model read 'review', 'title' as such"):
        export(run, "neural-s7", "onnx")
    example = example_of(model)
    assert list(example) == ["review", "title"] and len(model.predict(example)) == len(example)
