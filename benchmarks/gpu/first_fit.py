"""Shows whether H2O XGBoost really trains on a GPU of this machine, and at what speed against its CPU.

    python benchmarks/gpu/first_fit.py [--rows 1000000]

Starts one lane's H2O on GPU 0 and fits the same generated table twice with ``backend="gpu"`` and
once with ``backend="cpu"``. The first GPU fit includes compiling the library's code if the GPU is newer than
the library. Prints the native parameters: ``tree_method=gpu_hist`` is the proof. Exit status 1 if it is
missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkgpu.core.host.reservations import reserved_ports, scratch_folder
from sparkgpu.h2o.context import start_h2o, stopping
from sparkgpu.h2o.session import spark_session


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--trees", type=int, default=200)
    options = parser.parse_args()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    threads = len(os.sched_getaffinity(0))
    with scratch_folder() as scratch, reserved_ports(1) as (port,):
        rng = np.random.default_rng(7)
        x = rng.standard_normal((options.rows, options.columns), dtype=np.float32)
        y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.1 * rng.standard_normal(options.rows)
        columns = {f"x{i}": x[:, i] for i in range(options.columns)} | {"y": y}
        pq.write_table(pa.table(columns), scratch / "table.parquet")
        with (
            spark_session(
                name="first-fit", threads=threads, heap_bytes=16 * 2**30, scratch=scratch, port_base=port
            ) as session,
            stopping(start_h2o(session, name="first-fit", scratch=scratch, port_base=port, threads=threads)),
        ):
            sys.exit(0 if compare(str(scratch / "table.parquet"), options.trees) else 1)


def compare(file: str, trees: int) -> bool:
    """Fit twice on the GPU and once on the CPU. Returns whether the GPU was used both times."""
    import h2o
    from h2o.estimators import H2OXGBoostEstimator

    h2o.no_progress()
    frame = h2o.import_file(file)
    proven = []
    for backend in ("gpu", "gpu", "cpu"):
        model = H2OXGBoostEstimator(
            ntrees=trees, max_depth=8, learn_rate=0.1, tree_method="hist", backend=backend,
            gpu_id=[0] if backend == "gpu" else None, seed=7, score_eval_metric_only=True, eval_metric="rmse",
        )  # fmt: skip
        start = time.perf_counter()
        model.train(y="y", training_frame=frame)
        seconds = time.perf_counter() - start
        native = {row[-2]: row[-1] for row in model._model_json["output"]["native_parameters"].cell_values}
        print(f"{backend}: {seconds:.1f} s, tree_method={native.get('tree_method')}, RMSE {model.rmse():.4f}")
        if backend == "gpu":
            proven.append(native.get("tree_method") == "gpu_hist")
    return all(proven)


if __name__ == "__main__":
    main()
