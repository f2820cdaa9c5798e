"""The folder in which ``table/`` is made: under another name until it is complete, then moved as a whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkgpu.rundir.files import write_json
from sparkgpu.rundir.paths import RunPaths
from sparkgpu.table.schema import TableSchema


@contextmanager
def table_folder(paths: RunPaths) -> Iterator[Path]:
    """An empty path for the table; what is still there at the end of the block goes."""
    folder = paths.root / ".table"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(folder: Path, schema: TableSchema, paths: RunPaths) -> None:
    """Make the complete table in `folder` the run's table."""
    write_json(folder / "schema.json", schema)
    shutil.rmtree(paths.table, ignore_errors=True)
    folder.replace(paths.table)
