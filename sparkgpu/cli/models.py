"""``sparkgpu predict`` and ``export``: what was trained, applied and written for other programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from sparkgpu.core.config.command_options import AsJson
from sparkgpu.core.words import clean
from sparkgpu.present.terminal.spool import say


def predict(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    source: Annotated[
        str, typer.Argument(help="Parquet file or folder, CSV (plain or compressed), ORC or JSON lines.")
    ],
    out: Annotated[Path, typer.Option(help="The file to write; it ends with .parquet or .csv.")],
    model: Annotated[
        str,
        typer.Option(
            help="best (the leader on the validation rows), the name of a model (trees, neural, blend, ...), "
            "or that of a trial."
        ),
    ] = "best",
    keep_columns: Annotated[
        bool, typer.Option("--keep-columns", help="Write the source's columns before the predictions.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only notes and errors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a table with a model of a finished run."""
    from sparkgpu.core.table.source import find_source
    from sparkgpu.predict.apply import predict_source
    from sparkgpu.predict.fitted import load
    from sparkgpu.predict.output import check_output
    from sparkgpu.present.terminal.commands import counting, predicted_json, show_predicted

    check_output(out)  # before the seconds of loading
    find_source(source)
    with counting(quiet) as progress:
        fitted = load(run_dir, model)
        outcome = predict_source(fitted, source, out, keep_columns=keep_columns, progress=progress)
    show_predicted(fitted, outcome, out, quiet=quiet or as_json)
    if as_json:
        typer.echo(predicted_json(fitted, outcome, out))


def export(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    format: Annotated[
        str,
        typer.Option(
            help="onnx or torch for networks; onnx, mojo, xgboost, lightgbm or catboost for trees; mlflow."
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help="best (the leader), or a model or trial by name; a blend of several only to mlflow."
        ),
    ] = "best",
    out: Annotated[
        Path | None, typer.Option(help="The file to write; without it, a file in exports/ of the run.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model of a finished run in a format that other programs read, and check it."""
    from sparkgpu.predict.export import export as write
    from sparkgpu.predict.export import notes_on

    file, notes = str(write(run_dir, model, format, out)), list(notes_on(run_dir, model, format))
    typer.echo(json.dumps({"file": file, "format": format, "notes": notes}, indent=2) if as_json else file)
    for note in notes:
        say(f"sparkgpu: note: {clean(note)}\n", sys.stderr)
