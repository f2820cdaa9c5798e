"""The run's table inside an H2O cloud, as H2O parses it.

XGBoost trains on the nodes that hold chunks of the training rows. If one of these has no validation rows,
H2O fails on that node and waits for it forever. So only one node trains if H2O put no rows on another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import h2o
from h2o.expr import ExprNode

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import files_of
from sparkgpu.core.table.schema import FOLD, LABEL, WEIGHT, SplitName, TableSchema
from sparkgpu.h2o.client_internals import frame_of

if TYPE_CHECKING:
    from h2o import H2OFrame

# Nodes wait for each other several times in each tree. Two nodes with one thread each, on one machine, took
# 1.1 to 2.5 times as long as one node with 14,000 training rows, and 0.9 times as long with 34,000.
_MIN_ROWS_PER_NODE = 10_000


class H2OTables:
    """The run's table inside one H2O cloud, for all its trials.

    The level codes of the files become H2O's categories, or numbers in another order, inside the cloud. On
    one node the rows are in the order of their ids; a cloud of several nodes has no row order.
    """

    def __init__(self, paths: RunPaths, schema: TableSchema) -> None:
        self._paths = paths
        self._schema = schema
        cloud = h2o.api("GET /3/Cloud", data={"skip_ticks": True})
        self._nodes = frozenset(str(node["ip_port"]) for node in cloud.nodes)
        self._frames: dict[str, H2OFrame] = {}
        self._coded: dict[object, H2OFrame] = {}

    def coded(
        self, split: SplitName, fold: int | None, order: Mapping[str, Sequence[int]], unit: float = 1.0
    ) -> H2OFrame:
        """The rows that a trial uses, coded as those of `LocalTables.coded`."""
        folded = fold is not None and split != "test"
        whole = "train" if folded else split
        key = (whole, tuple(order.items()), unit)
        if key not in self._coded:
            self._coded[key] = _coded(self._whole(whole), self._schema, order, unit)
        rows = self._coded[key]
        if not folded:
            return rows
        return rows[rows[FOLD] != fold, :] if split == "train" else rows[rows[FOLD] == fold, :]

    def why_one_node(self, train: H2OFrame, valid: H2OFrame) -> str | None:
        """Why only one of several nodes may train on these rows; None if all may.

        It checks where the rows really are, since a node without validation rows would make H2O wait forever.
        """
        nodes, rows = len(self._nodes), self._schema.splits["train"]
        if nodes == 1:
            return None
        if rows < nodes * _MIN_ROWS_PER_NODE:
            why = f"{rows:,} training rows are too few for more"
        elif not all(self._nodes <= _nodes_of(frame) for frame in (train, valid)):
            why = "H2O put no rows on some of the others"
        else:
            return None
        return f"trained on one of {nodes} H2O nodes: {why}"

    def _whole(self, split: str) -> H2OFrame:
        if split not in self._frames:
            files = [str(file) for file in files_of(self._paths.split(split))]
            setup = h2o.parse_setup(h2o.lazy_import(files), header=0)
            self._frames[split] = h2o.parse_raw(setup, first_line_is_header=setup["check_header"])
        return self._frames[split]


def _coded(rows: H2OFrame, schema: TableSchema, order: Mapping[str, Sequence[int]], unit: float) -> H2OFrame:
    """As one expression: H2OFrame's own methods would ask the server several times for each column."""
    own = [name for name in (LABEL, WEIGHT, FOLD) if name in rows.names]
    names = [*own, *(feature.name for feature in schema.features)]
    made = {name: rows[name].match(list(codes), start_index=0) for name, codes in order.items()}
    if schema.classes:
        made[LABEL] = _as_categories(rows[LABEL], [str(code) for code in range(len(schema.classes))])
    elif unit != 1:
        made[LABEL] = rows[LABEL] / unit
    for feature in schema.categorical:
        if feature.name not in order:
            made[feature.name] = _as_categories(rows[feature.name], feature.levels)
    others = [name for name in names if name not in made]
    found = ExprNode("cbind", *([rows[others]] if others else []), *made.values())
    places = list(range(len(names)))
    named = ExprNode("colnames=", found, places, [*others, *made])
    position = {name: place for place, name in enumerate([*others, *made])}
    return frame_of(ExprNode("cols_py", named, [position[name] for name in names]))


def _as_categories(codes: H2OFrame, texts: Sequence[str]) -> H2OFrame:
    made = frame_of(ExprNode("as.factor", codes))
    held = [found for levels in made.levels() for found in levels]
    return made.set_levels([texts[int(code)] for code in held]) if held else made


def _nodes_of(frame: H2OFrame) -> set[str]:
    found = h2o.api(f"GET /3/Frames/{frame.frame_id}", data={"row_count": 1, "column_count": 1})
    table = found["frames"][0]["distribution_summary"]
    rows = table.col_header.index("number_of_rows")
    return {str(row[0]) for row in table.cell_values if row[rows]}
