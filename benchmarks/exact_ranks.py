"""ROC AUC and average precision of one trial of a folder of `large_scores.py`, by one sort of all its rows.

    python benchmarks/exact_ranks.py FOLDER [trees]

It takes 40 bytes a row and no function of the package, so that `large_scores.py` can be compared with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def main() -> None:
    folder, trial = Path(sys.argv[1]), (sys.argv[2:] or ["trees"])[0]
    files = sorted((folder / "table" / "split=test").glob("*.parquet"))
    label_N = np.concatenate([pq.read_table(file, columns=["label"])["label"].to_numpy() for file in files])
    label_N = label_N.astype(np.int8)
    score_N, begin = np.empty(len(label_N)), 0
    with pq.ParquetFile(folder / "trials" / trial / "predictions.parquet") as file:
        for batch in file.iter_batches(2**20, columns=["split", "probability_1"]):
            own = batch.filter(pc.equal(batch["split"], pa.scalar("test")))["probability_1"].to_numpy()
            score_N[begin : begin + len(own)] = own
            begin += len(own)
    order_N = np.argsort(-score_N, kind="stable")
    score_N, label_N = score_N[order_N], label_N[order_N]
    del order_N
    ends = np.append(np.flatnonzero(np.diff(score_N)), len(score_N) - 1)  # of rows with the same score
    positive = np.cumsum(label_N, dtype=np.int64)[ends].astype(np.float64)
    negative = ends + 1.0 - positive
    gained, lost = np.diff(positive, prepend=0.0), np.diff(negative, prepend=0.0)
    auc = float(lost @ (positive - gained / 2)) / positive[-1] / negative[-1]
    precision = float(gained @ (positive / (positive + negative))) / positive[-1]
    print(f"{len(label_N):,} rows: roc_auc {auc:.9f}, average_precision {precision:.9f}")


if __name__ == "__main__":
    main()
