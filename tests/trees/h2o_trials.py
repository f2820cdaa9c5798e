"""Trains trials of `h2o-xgboost` in one H2O: ``python h2o_trials.py SCRATCH TRIALS.json``.

A process of its own, since H2O can start once in the life of a JVM. Each trial of the file has a
`run_dir`, a `name`, `settings`, and `native`: whether XGBoost's own library predicts inside H2O. With
`by_h2o` H2O predicts all rows, with `parsed` it parses the table as a cloud does. With `frees_cores` the lane
has a second core, free from the start: the trees must take it, or the process fails. `ntrees_of` names an
earlier trial whose best number of trees this one grows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from planted_trees import cpu_lane, planned

from sparkgpu.engines.engine import Platform, TreesTrial
from sparkgpu.engines.trees.free_cores import FreeCoresOfH2O
from sparkgpu.host.ports import reserved_ports
from sparkgpu.jvm.h2o_node import h2o_alone, native_predictions
from sparkgpu.jvm.startup import JvmSettings
from sparkgpu.rundir.files import read_record, write_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.rundir.records import FitRecord
from sparkgpu.table.schema import read_schema


def main() -> None:
    scratch, trials = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    with (
        reserved_ports(1) as (port_base,),
        h2o_alone(
            JvmSettings(heap_bytes=2**30, threads=1, scratch=scratch), name="trees-test", port_base=port_base
        ) as java,
    ):
        from sparkgpu.engines.trees.h2o_frames import H2OTables
        from sparkgpu.engines.trees.h2o_xgboost import H2OXGBoost

        for asked in trials:
            paths = RunPaths(root=Path(asked["run_dir"]))
            settings = asked["settings"]
            if asked["ntrees_of"]:
                earlier = read_record(paths.trial(asked["ntrees_of"]).fit, FitRecord)
                settings = {**settings, "ntrees": earlier.best_iteration, "early_stopping_rounds": 0}
            (own := scratch / asked["name"]).mkdir()
            trial = planned(
                paths, read_schema(paths), asked["name"], "h2o-xgboost", cpu_lane(port_base), own,
                **settings,
            )  # fmt: skip
            trial = replace(trial, spec=trial.spec.model_copy(update={"fold": asked["fold"]}))
            engine = H2OXGBoost(Platform(java=java))
            if asked["parsed"]:
                engine._tables = H2OTables(trial.run, trial.schema, own)

            def predicting(trial: TreesTrial, native: bool = asked["native"]) -> AbstractContextManager[None]:
                return native_predictions(java) if native else nullcontext()

            def applies_saved_trees(by_h2o: bool = asked["by_h2o"]) -> bool:
                return not by_h2o

            with (
                mock.patch.object(engine, "_predicting", predicting),
                mock.patch.object(engine, "_applies_saved_trees", applies_saved_trees),
                taking_free_cores(engine, java) if asked["frees_cores"] else nullcontext(),
            ):
                if asked["frees_cores"]:
                    lane = trial.lane.model_copy(update={"threads": 2})
                    trial = replace(trial, lane=lane, cores_are_free=lambda: True)
                write_json(trial.paths.fit, engine.run(trial))


@contextmanager
def taking_free_cores(engine: Any, java: Any) -> Iterator[None]:
    """Looks for free cores without a pause, and fails if the trees got none."""
    from sparkgpu.engines.trees import free_cores as own
    from sparkgpu.engines.trees import h2o_xgboost

    given: list[FreeCoresOfH2O] = []

    def free_cores(model: Any, trial: TreesTrial) -> FreeCoresOfH2O:
        given.append(FreeCoresOfH2O(java, model.model_id, trial))
        return given[-1]

    with (
        mock.patch.object(engine, "_free_cores", free_cores),
        mock.patch.object(h2o_xgboost, "_POLL_S", 0.0),
        mock.patch.object(own, "_LEAST_TREE_S", 0.0),
    ):
        yield
    assert [found.given for found in given] == [2]


if __name__ == "__main__":
    main()
