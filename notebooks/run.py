"""Executes the notebooks, each in an empty folder; with --write, keeps their outputs for code hosts to show.

    python notebooks/run.py                     all of them
    python notebooks/run.py quickstart --write  one of them, and its outputs are kept

The kept outputs hold no path of this machine and no time of execution.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).resolve().parent
MOST_BYTES = 300_000
CELL_TIMEOUT_S = 300


def main() -> int:
    names = sorted(file.stem for file in HERE.glob("*.ipynb"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--write", action="store_true", help="keep the outputs in the notebooks")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in names]:
        parser.error(f"there is no notebook {', '.join(unknown)}; choose from {', '.join(names)}.")
    failed = []
    for name in asked.names or names:
        start = time.monotonic()
        try:
            notebook = executed(HERE / f"{name}.ipynb")
        except (CellExecutionError, ValueError) as error:
            print(f"{name}: failed\n{error}", file=sys.stderr)
            failed.append(name)
            continue
        size = len(nbformat.writes(notebook).encode())
        print(f"{name}: {time.monotonic() - start:.0f} s, {size / 1000:.0f} kB", flush=True)
        if size > MOST_BYTES:
            print(f"{name}: it has more than {MOST_BYTES / 1000:.0f} kB.", file=sys.stderr)
            failed.append(name)
        elif asked.write:
            nbformat.write(notebook, HERE / f"{name}.ipynb")
    return 1 if failed else 0


def executed(file: Path) -> Any:
    """The notebook with new outputs.

    Raises `CellExecutionError` with the cell that failed, and ValueError if an output names a path of ours.
    """
    notebook = nbformat.read(file, as_version=4)
    with tempfile.TemporaryDirectory(prefix="sparkgpu-notebook-") as folder:
        place = str(Path(folder).resolve())
        NotebookClient(
            notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", record_timing=False,
            resources={"metadata": {"path": place}},
        ).execute()  # fmt: skip
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    text = json.dumps(notebook).replace(f"{place}/", "").replace(place, ".")
    if found := [path for path in _OURS if path in text]:
        raise ValueError(f"{file.name}: its outputs name {', '.join(found)}, a path of this machine.")
    return nbformat.from_dict(json.loads(text))


_OURS = tuple(f"{path}/" for path in (sys.prefix, Path.home(), HERE.parent, tempfile.gettempdir()))


def _joined(outputs: list[Any]) -> list[Any]:
    """Lines that were printed one after the other as one output."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


if __name__ == "__main__":
    sys.exit(main())
