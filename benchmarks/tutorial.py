"""The pipeline as tutorials write it: one process, one step after the other, every library's defaults.

`benchmarks/end_to_end.py` compares against it. It uses ordinal codes for texts, medians for missing values,
one VectorAssembler, a plain H2OContext.getOrCreate(), and an MLP fed by a DataLoader. It is deliberately
plain, not deliberately slow.

    python benchmarks/tutorial.py TABLE.parquet TARGET --out result.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


class Laps:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = round(now - self._last, 2)
        self._last = now


def read(file: Path, target: str, seed: int) -> tuple[pd.DataFrame, np.ndarray, list[Any] | None, np.ndarray]:
    """Features as doubles, labels, classes (None for regression) and the split (0 train, 1 valid, 2 test)."""
    table = pd.read_parquet(file).dropna(subset=[target])
    label = table.pop(target)
    few = label.nunique() <= 20
    classes = sorted(label.unique()) if few or label.dtype == object else None
    y = label.map({c: i for i, c in enumerate(classes)}).to_numpy() if classes else label.to_numpy(float)
    x = pd.DataFrame(index=table.index)
    for position, (_, column) in enumerate(table.items()):
        codes = column if column.dtype.kind in "biuf" else column.astype("category").cat.codes
        x[f"x{position}"] = codes.astype(float).fillna(codes.astype(float).median())
    split = np.random.default_rng(seed).choice(3, len(x), p=[0.7, 0.15, 0.15])
    return x, y, classes, split


def trees(x: pd.DataFrame, y: np.ndarray, is_class: bool, split: np.ndarray, options: argparse.Namespace,
          laps: Laps) -> np.ndarray:  # fmt: skip
    """Train H2O XGBoost through Sparkling Water. Returns the predictions of the test rows."""
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", "6g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config(
            "spark.driver.extraJavaOptions",
            "--add-exports=java.base/sun.net.www.protocol.http=ALL-UNNAMED",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.createDataFrame(x.assign(label=y, part=split))
    frame = VectorAssembler(inputCols=list(x.columns), outputCol="features").transform(frame)
    laps.lap("spark")
    import h2o
    from h2o.estimators import H2OXGBoostEstimator
    from pysparkling import H2OContext

    context = H2OContext.getOrCreate()
    h2o.no_progress()
    laps.lap("h2o_context")
    parts = [
        context.asH2OFrame(frame.where(f"part = {part}").select("features", "label")) for part in range(3)
    ]
    if is_class:
        for part in parts:
            part["label"] = part["label"].asfactor()
    laps.lap("h2o_frames")
    model = H2OXGBoostEstimator(
        ntrees=options.trees, max_depth=options.depth, learn_rate=0.1, tree_method="hist", seed=options.seed,
        stopping_rounds=3, score_tree_interval=10,
    )  # fmt: skip
    model.train(y="label", training_frame=parts[0], validation_frame=parts[1])
    laps.lap("tree_fit")
    found = model.predict(parts[2]).as_data_frame(use_multi_thread=True)
    laps.lap("tree_predict")
    return found.iloc[:, 1:].to_numpy() if is_class else found["predict"].to_numpy()


def network(x: pd.DataFrame, y: np.ndarray, num_classes: int | None, split: np.ndarray,
            options: argparse.Namespace, laps: Laps) -> np.ndarray:  # fmt: skip
    """Train an MLP 256-256 fed by a DataLoader. Returns the predictions of the test rows."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(options.seed)
    values = x.to_numpy(np.float32)
    inputs = torch.from_numpy((values - values[split == 0].mean(0)) / (values[split == 0].std(0) + 1e-6))
    outputs = num_classes or 1
    center, scale = (0.0, 1.0) if num_classes else (y[split == 0].mean(), y[split == 0].std())
    targets = torch.from_numpy(y).long() if num_classes else torch.from_numpy((y - center) / scale).float()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = nn.Sequential(
        nn.Linear(inputs.shape[1], 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)
    ).to(device)
    loss_of = nn.CrossEntropyLoss() if num_classes else nn.MSELoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    is_train = torch.from_numpy(split == 0)
    loader = DataLoader(
        TensorDataset(inputs[is_train], targets[is_train]), batch_size=options.batch, shuffle=True
    )
    for _ in range(options.epochs):
        for xb, yb in loader:
            out = net(xb.to(device))
            loss = loss_of(out if num_classes else out.squeeze(1), yb.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    laps.lap("neural_fit")
    with torch.no_grad():
        out = net(inputs[torch.from_numpy(split == 2)].to(device)).cpu()
    laps.lap("neural_predict")
    return out.softmax(1).numpy() if num_classes else out.squeeze(1).numpy() * scale + center


def scores(y: np.ndarray, predicted: np.ndarray, num_classes: int | None) -> dict[str, float]:
    """The test metrics that compare the two forms."""
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score, root_mean_squared_error

    if not num_classes:
        return {"rmse": float(root_mean_squared_error(y, predicted))}
    found = {
        "log_loss": float(log_loss(y, predicted, labels=range(num_classes))),
        "accuracy": float(accuracy_score(y, predicted.argmax(1))),
    }
    return found | ({"roc_auc": float(roc_auc_score(y, predicted[:, 1]))} if num_classes == 2 else {})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("target")
    parser.add_argument("--trees", type=int, default=200)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    laps = Laps()
    x, y, classes, split = read(options.table, options.target, options.seed)
    laps.lap("pandas")
    num_classes = len(classes) if classes else None
    by_trees = trees(x, y, num_classes is not None, split, options, laps)
    by_network = network(x, y, num_classes, split, options, laps)
    test = {
        "trees": scores(y[split == 2], by_trees, num_classes),
        "neural": scores(y[split == 2], by_network, num_classes),
    }
    seconds = laps.seconds
    result = {"total_s": round(sum(seconds.values()), 2), "seconds": seconds, "test": test}
    options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
