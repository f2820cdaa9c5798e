"""Trains trials of `h2o-xgboost` in one H2O context: ``python h2o_trials.py SCRATCH TRIALS.json``.

A process of its own, since a process can have one H2O context in its life. Each trial of the file has a
`run_dir`, a `name`, `settings`, and `native`: whether XGBoost's own library predicts.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

from planted_trees import config_of, cpu_lane, trial_of

from sparkgpu.host.ports import reserved_ports
from sparkgpu.jvm.h2o_context import native_predictions, start_h2o, stopping
from sparkgpu.jvm.session import spark_session
from sparkgpu.rundir.events import EventWriter
from sparkgpu.rundir.files import write_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.schema import read_schema


def main() -> None:
    scratch, trials = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    with (
        reserved_ports(1) as (port_base,),
        spark_session(
            name="trees", threads=1, heap_bytes=2**30, scratch=scratch, port_base=port_base
        ) as session,
        stopping(start_h2o(session, name="trees-test", scratch=scratch, port_base=port_base, threads=1)),
    ):
        from sparkgpu.engines.trees import h2o_frames, h2o_xgboost

        for trial in trials:
            paths = RunPaths(root=Path(trial["run_dir"]))
            schema, lane = read_schema(paths), paths.lane(0)
            (own := scratch / trial["name"]).mkdir()
            record = h2o_xgboost.run_trial(
                trial_of(trial["name"], "h2o-xgboost"),
                config_of("h2o-xgboost", **trial["settings"]),
                schema,
                h2o_frames.H2OTables(paths, schema, own),
                paths,
                cpu_lane(port_base),
                EventWriter(lane.events("trees"), lane.phases("trees")),
                predicting=native_predictions(session) if trial["native"] else nullcontext(),
            )
            write_json(paths.trial(trial["name"]).fit, record)


if __name__ == "__main__":
    main()
