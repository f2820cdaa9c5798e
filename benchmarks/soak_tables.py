"""The tables that `benchmarks/soak.py` runs on; none needs a network."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

SMALL = ("trees.ntrees=20", "neural.epochs=2", "neural.hidden=[32]")
SMALLEST = ("trees.ntrees=20", "neural.architecture=mlp", "neural.epochs=1", "neural.hidden=[32]")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table for one run: its name in the results, its file and its target."""

    name: str
    file: str
    target: str
    settings: tuple[str, ...] = SMALL


def write_tables(named: list[str], *, runs: int, large: int, folder: Path) -> list[Table]:
    """The tables of all runs in order, each copied or written into `folder`.

    `named` are the user's tables as FILE:TARGET. Without any, two small tables are written. The `runs` runs
    use the small tables in turn; `large` more runs use one large table.
    """
    small = []
    for number, text in enumerate(named):
        source, _, target = text.rpartition(":")
        file = folder / f"{number}-{Path(source).name}"
        (shutil.copytree if Path(source).is_dir() else shutil.copy)(source, file)
        small.append(Table(name=Path(source).stem, file=file.name, target=target))
    if runs and not small:
        import sklearn.datasets

        for name in ("breast_cancer", "wine"):
            frame = getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
            frame.to_parquet(folder / f"{name}.parquet")
            small.append(Table(name=name, file=f"{name}.parquet", target="target"))
    tables = [small[number % len(small)] for number in range(runs)]
    if large:
        made_up = Table(name="large", file=write_large(folder).name, target="label", settings=SMALLEST)
        # Spread among the small ones, so a soak that is cut short has run some of both.
        for number in range(large):
            tables.insert(round(number * (runs / large + 1)), made_up)
    return tables


def write_large(folder: Path, rows: int = 1_000_000, columns: int = 30) -> Path:
    """A generated table with a signal: floats of both widths, and a boolean label."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(7)
    values = [chance.standard_normal(rows, dtype=np.float32) for _ in range(columns)]
    score = values[0] * values[1] + np.sin(3 * values[2]) + 0.5 * chance.standard_normal(rows)
    named = {f"x{i}": x.astype(np.float64) if i % 2 else x for i, x in enumerate(values)}
    file = folder / "large.parquet"
    pq.write_table(pa.table({**named, "label": score > 0}), file)
    return file
