"""The run's table inside an H2O cloud: parsed once, on the nodes that will train on it.

A lane's own H2O gets it in another way (`h2o_local_frames`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import h2o
from h2o.expr import ExprNode

from sparkgpu.engines.trees.h2o_layout import Layout, choose_layout, one_node_note, write_pieces
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.row_order import ordered_files
from sparkgpu.table.schema import FOLD, LABEL, SplitName, TableSchema

if TYPE_CHECKING:
    from h2o import H2OFrame


class H2OTables:
    """The run's table inside one H2O cloud, for all its trials.

    `scratch` is a folder that all its nodes share. On one node the rows are in the order of their ids. A
    cloud of several nodes has no row order, and its table may be too large for one machine to sort.
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

    def coded(self, split: SplitName, fold: int | None, order: Mapping[str, Sequence[str]]) -> H2OFrame:
        """The same rows with the places of their levels in `order`, from 0 on, in place of the words.

        A level that is not there is a missing value. H2O's own encodings do not serve: one reads words as
        numbers if the first word is a number.
        """
        rows = self.split(split, fold)
        if not order:
            return rows
        key = (split, fold, tuple(order.items()))
        if key not in self._coded:
            self._coded[key] = _matched(rows, order)
        return self._coded[key]

    def split(self, split: SplitName, fold: int | None) -> H2OFrame:
        """The rows that a trial uses for training, validation or testing."""
        if fold is None or split == "test":
            return self._whole(split)
        frame = self._whole("train")
        return frame[frame[FOLD] != fold, :] if split == "train" else frame[frame[FOLD] == fold, :]

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
                files = sorted(folder.glob("*.parquet"))
                pieces = write_pieces(files, self.scratch / f"pieces-{split}", self._layout.pieces)
                frame = self._parsed(pieces, chunk_size=max(file.stat().st_size for file in pieces))
            elif self._layout.nodes > 1:
                frame = self._parsed(sorted(folder.glob("*.parquet")))
            else:
                frame = self._parsed(ordered_files(folder, self.scratch))
            if self._schema.classes:
                frame[LABEL] = frame[LABEL].asfactor()
            self._frames[split] = frame
        return self._frames[split]

    def _parsed(self, files: list[Path], *, chunk_size: int | None = None) -> H2OFrame:
        """The files as a frame, cut into chunks by H2O's own rule, or after this many bytes."""
        raw = h2o.lazy_import([str(file) for file in files])
        setup = h2o.parse_setup(raw, header=0, column_types=self._types())
        if chunk_size:
            setup["chunk_size"] = chunk_size
        return h2o.parse_raw(setup, first_line_is_header=setup["check_header"])

    def _types(self) -> dict[str, str]:
        return {feature.name: "enum" for feature in self._schema.categorical}


def _matched(rows: H2OFrame, order: Mapping[str, Sequence[str]]) -> H2OFrame:
    """As one expression: H2OFrame's own methods ask the server several times for each column."""
    matched = [rows[name].match(list(words), start_index=0) for name, words in order.items()]
    others = [name for name in rows.names if name not in order]
    names = [*others, *order]
    found = ExprNode("cbind", rows[others], *matched)
    return h2o.H2OFrame._expr(expr=ExprNode("colnames=", found, list(range(len(names))), names))


def _nodes_of(frame: H2OFrame) -> set[str]:
    """The nodes that hold rows of `frame`, as ``address:port``."""
    found = h2o.api(f"GET /3/Frames/{frame.frame_id}", data={"row_count": 1, "column_count": 1})
    table = found["frames"][0]["distribution_summary"]
    rows = table.col_header.index("number_of_rows")
    return {str(row[0]) for row in table.cell_values if row[rows]}
