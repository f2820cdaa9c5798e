"""Tables with a column of sentences, and a run's blend beside LightGBM on scikit-learn's TfidfVectorizer.

`python benchmarks/text.py make FOLDER` writes tables of texts of this machine: docstrings of installed
packages, and Debian's descriptions of packages (`apt-get update` gives them). `python benchmarks/text.py
against RUN TABLE TEXT...` trains on the run's training rows, stops by its validation rows, and scores
its test rows.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score, log_loss

PACKAGES = ("pandas", "scipy", "sklearn", "torch", "matplotlib", "pyarrow", "pyspark", "numpy", "h2o")
ROWS = {"docstrings": 1_500, "debian": 8_000}


def docstrings() -> pd.DataFrame:
    """Docstrings without the package's name, statements and kind of the definition, and the package."""
    rows: list[tuple[Any, ...]] = []
    for name in PACKAGES:
        found = set()
        for file in sorted(Path(sysconfig.get_paths()["purelib"], name).rglob("*.py")):
            if "tests" in file.parts:
                continue
            try:
                tree = ast.parse(file.read_text(encoding="utf-8", errors="ignore"))
            except SyntaxError:  # of a later Python
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    text = " ".join((ast.get_docstring(node) or "").split())
                    text = re.sub(rf"(?i){name}|scikit-learn|pytorch", "it", text)[:400]
                    if len(text.split()) >= 5:
                        found.add((text, len(node.body), type(node).__name__, name))
        drawn = np.random.default_rng(0).permutation(len(found))[: ROWS["docstrings"]]
        rows += [sorted(found)[place] for place in drawn]
    table = pd.DataFrame(rows, columns=["docstring", "statements", "kind", "package"])
    return table.sample(frac=1, random_state=0)


def debian() -> pd.DataFrame:
    """The one-line descriptions of packages, their size, architecture and priority, and the section."""
    told = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    fields = re.compile(r"(?m)^(Section|Installed-Size|Architecture|Priority|Description)(?:-en)?: (.*)")
    table = pd.DataFrame([dict(fields.findall(one)) for one in told.split("\n\n") if "\nSection" in one])
    table = table.drop_duplicates("Description").dropna(subset=["Description"])
    table["Installed-Size"] = table["Installed-Size"].astype(float)
    table = table[table["Section"].isin(table["Section"].value_counts().index[:12])]
    return table.sample(ROWS["debian"], random_state=0)


def against(run: Path, table: Path, texts: list[str]) -> None:
    frame = pd.read_parquet(table) if table.suffix == ".parquet" else pd.read_csv(table)
    schema = json.loads((run / "table" / "schema.json").read_text())
    rows = {
        split: np.sort(
            pq.read_table(run / "table" / f"split={split}", partitioning=None)["row_id"].to_numpy()
        )
        for split in ("train", "valid", "test")
    }
    label_N = pd.Categorical(frame[schema["target"]].astype(str), categories=schema["classes"]).codes
    parts = []
    for text in texts:
        column = frame[text].fillna("")
        parts.append(TfidfVectorizer().fit(column.iloc[rows["train"]]).transform(column))
    for name in frame.columns.drop([schema["target"], *texts]):
        column = frame[name]
        values = column if pd.api.types.is_numeric_dtype(column) else column.astype("category").cat.codes
        parts.append(sparse.csr_matrix(values.to_numpy(float)[:, None]))
    value_NF = sparse.hstack(parts).tocsr()
    began = time.process_time()
    model = lightgbm.LGBMClassifier(n_estimators=2000, learning_rate=0.05, n_jobs=1, verbose=-1)
    model.fit(
        value_NF[rows["train"]],
        label_N[rows["train"]],
        eval_set=[(value_NF[rows["valid"]], label_N[rows["valid"]])],
        callbacks=[lightgbm.early_stopping(50, verbose=False)],
    )
    share_NC = model.predict_proba(value_NF[rows["test"]])
    test_N = label_N[rows["test"]]
    print(
        f"{table.stem}: LightGBM on TF-IDF, {value_NF.shape[1]:,} columns, {model.best_iteration_} trees, "
        f"{time.process_time() - began:.0f} processor s: log loss {log_loss(test_N, share_NC):.4f}, "
        f"accuracy {accuracy_score(test_N, share_NC.argmax(axis=1)):.4f}"
    )
    for one in json.loads((run / "metrics.json").read_text())["models"]:
        test = one["metrics"]["test"]
        print(f"  {one['name']}: log loss {test['log_loss']:.4f}, accuracy {test['accuracy']:.4f}")


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "make":
        for made in (docstrings, debian):
            made().to_parquet(Path(arguments[0]) / f"{made.__name__}.parquet", index=False)
    else:
        against(Path(arguments[0]), Path(arguments[1]), arguments[2:])
