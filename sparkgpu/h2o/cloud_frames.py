"""The run's table inside an H2O cloud: parsed once, on the nodes that will train on it.

A lane's own H2O gets it in another way (`frames`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import h2o
from h2o.expr import ExprNode

from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.rows import files_of
from sparkgpu.core.table.schema import FOLD, LABEL, WEIGHT, SplitName, TableSchema
from sparkgpu.h2o.client_internals import frame_of
from sparkgpu.h2o.layout import Layout, choose_layout, one_node_note, write_pieces

if TYPE_CHECKING:
    from h2o import H2OFrame


class H2OTables:
    """The run's table inside one H2O cloud, for all its trials.

    `scratch` is a folder that all its nodes share. The level codes of the files become H2O's categories, or
    numbers in another order, inside the cloud: files too large to write again are parsed as they lie. On one
    node the rows are in the order of their ids; a cloud of several nodes has no row order.
    """

    def __init__(self, paths: RunPaths, schema: TableSchema, scratch: Path) -> None:
        self._paths = paths
        self._schema = schema
        self.scratch = scratch
        nodes = h2o.api("GET /3/Cloud", data={"skip_ticks": True}).nodes
        self._nodes = {str(node["ip_port"]) for node in nodes}
        self._threads = max(int(node["nthreads"]) for node in nodes)
        self._frames: dict[str, H2OFrame] = {}
        self._coded: dict[object, H2OFrame] = {}
        self._layout = self._chosen()

    @property
    def num_nodes(self) -> int:
        """The number of nodes in the cloud."""
        return len(self._nodes)

    def coded(self, split: SplitName, fold: int | None, order: Mapping[str, Sequence[int]]) -> H2OFrame:
        """The rows that a trial uses for training, validation or testing.

        The features in `order` are numbers: the positions of their level codes in it, from 0 on. A level that
        is not there is missing. Other categorical features are categories.
        """
        folded = fold is not None and split != "test"
        whole = "train" if folded else split
        key = (whole, tuple(order.items()))
        if key not in self._coded:
            self._coded[key] = _coded(self._whole(whole), self._schema, order)
        rows = self._coded[key]
        if not folded:
            return rows
        return rows[rows[FOLD] != fold, :] if split == "train" else rows[rows[FOLD] == fold, :]

    def why_one_node(self, train: H2OFrame, valid: H2OFrame) -> str | None:
        """Why only one of several nodes may train on these rows; None if all may.

        It checks where the rows really are, since a node without validation rows would make H2O wait forever.
        """
        if self.num_nodes == 1 or self._layout.note:
            return self._layout.note
        if all(self._nodes <= _nodes_of(frame) for frame in (train, valid)):
            return None
        return one_node_note(self.num_nodes, "H2O put no rows on some of the others")

    def _chosen(self) -> Layout:
        schema = self._schema
        rows = schema.splits["train"]
        least = min(rows, schema.splits["valid"]) if schema.folds is None else rows // schema.folds
        return choose_layout(
            train_rows=rows,
            least_rows=least,
            columns=len(schema.features),
            nodes=self.num_nodes,
            threads=self._threads,
        )

    def _whole(self, split: str) -> H2OFrame:
        if split not in self._frames:
            folder = self._paths.split(split)
            if self._layout.pieces:
                pieces = write_pieces(files_of(folder), self.scratch / f"pieces-{split}", self._layout.pieces)
                frame = self._parsed(pieces, chunk_size=max(file.stat().st_size for file in pieces))
            else:
                frame = self._parsed(files_of(folder))
            self._frames[split] = frame
        return self._frames[split]

    def _parsed(self, files: list[Path], *, chunk_size: int | None = None) -> H2OFrame:
        """The files as a frame, cut into chunks by H2O's own rule, or after this many bytes."""
        raw = h2o.lazy_import([str(file) for file in files])
        setup = h2o.parse_setup(raw, header=0)
        if chunk_size:
            setup["chunk_size"] = chunk_size
        return h2o.parse_raw(setup, first_line_is_header=setup["check_header"])


def _coded(rows: H2OFrame, schema: TableSchema, order: Mapping[str, Sequence[int]]) -> H2OFrame:
    """The rows in the schema's order of features, as one expression.

    H2OFrame's own methods would ask the server several times for each column.
    """
    own = [name for name in (LABEL, WEIGHT, FOLD) if name in rows.names]
    names = [*own, *(feature.name for feature in schema.features)]
    made = {name: rows[name].match(list(codes), start_index=0) for name, codes in order.items()}
    if schema.classes:
        made[LABEL] = _as_categories(rows[LABEL], [str(code) for code in range(len(schema.classes))])
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
    """The codes that the rows hold become categories, in the order of the codes."""
    made = frame_of(ExprNode("as.factor", codes))
    held = [found for levels in made.levels() for found in levels]
    return made.set_levels([texts[int(code)] for code in held]) if held else made


def _nodes_of(frame: H2OFrame) -> set[str]:
    """The nodes that hold rows of `frame`, as ``address:port``."""
    found = h2o.api(f"GET /3/Frames/{frame.frame_id}", data={"row_count": 1, "column_count": 1})
    table = found["frames"][0]["distribution_summary"]
    rows = table.col_header.index("number_of_rows")
    return {str(row[0]) for row in table.cell_values if row[rows]}
