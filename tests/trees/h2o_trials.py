"""Trains trials of `h2o-xgboost` in one H2O: ``python h2o_trials.py SCRATCH TRIALS.json``.

A process of its own, since H2O can start once in the life of a JVM. Each trial of the file has a `run_dir`, a
`name`, `settings` and a `fold`. With `parsed` H2O parses the table as a cloud does. `ntrees_of` names an
earlier trial whose best number of trees this one grows. Beside the trial's files lie ``frame.csv``, the rows
that H2O trained on, and ``java.npy``, the MOJO's predictions of the test rows by Java in this JVM.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import h2o
import numpy as np
from planted_trees import Table, planned

from sparkgpu.core.errors import TrialError
from sparkgpu.core.host.reservations import reserved_ports
from sparkgpu.core.rundir.files import read_record, write_json
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.rows import read_rows
from sparkgpu.core.table.schema import read_schema
from sparkgpu.h2o.context import start_h2o, stopping
from sparkgpu.h2o.session import spark_session
from sparkgpu.trials.engine import Platform


def main() -> None:
    scratch, trials = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    with (
        reserved_ports(1) as (port_base,),
        spark_session(
            name="tests", threads=1, heap_bytes=2**30, scratch=scratch, port_base=port_base
        ) as session,
        stopping(start_h2o(session, name="tests", scratch=scratch, port_base=port_base, threads=1)),
    ):
        from sparkgpu.h2o.cloud_frames import H2OTables
        from sparkgpu.h2o.engine import H2OXGBoost
        from sparkgpu.h2o.mojo import MOJO, MojoModel
        from sparkgpu.h2o.parameters import level_order

        for asked in trials:
            paths = RunPaths(root=Path(asked["run_dir"]))
            schema, settings = read_schema(paths), asked["settings"]
            if asked["ntrees_of"]:
                earlier = read_record(paths.trial(asked["ntrees_of"]).fit, FitRecord)
                settings = {**settings, "ntrees": earlier.best_iteration, "early_stopping_rounds": 0}
            (own := scratch / asked["name"]).mkdir()
            planted = Table(paths=paths, schema=schema, label_N=np.empty(0), split_N=np.empty(0))
            trial = planned(planted, asked["name"], "h2o-xgboost", **settings)
            lane = trial.lane.model_copy(update={"port_base": port_base})
            spec = trial.spec.model_copy(update={"fold": asked["fold"]})
            trial = replace(trial, spec=spec, lane=lane, scratch=own)
            java = session._jvm
            engine = H2OXGBoost(Platform(java=java))
            if asked["parsed"]:
                engine._tables = H2OTables(trial.run, schema)
            write_json(trial.paths.fit, engine.run(trial))
            assert engine._tables is not None
            frame = engine._tables.coded("train", asked["fold"], level_order(trial))
            h2o.export_file(frame, str(trial.paths.root / "frame.csv"))
            test = read_rows(paths, schema, "test")
            try:
                by_java = MojoModel(trial.paths.root / MOJO, schema, java).predict(test)
            except TrialError:
                assert "NA" in schema.features[-1].levels
            else:
                np.save(trial.paths.root / "java.npy", by_java)


if __name__ == "__main__":
    main()
