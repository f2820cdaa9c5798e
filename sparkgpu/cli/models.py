"""``sparkgpu predict``, ``explain``, ``export`` and ``refit``: models applied, asked, and trained again."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from sparkgpu.core.config.command_options import AsJson, CpuLanes, Gpus
from sparkgpu.core.words import clean
from sparkgpu.present.terminal.spool import say

RunDir = Annotated[Path, typer.Argument(help="The folder of a finished run.")]
Source = Annotated[
    str, typer.Argument(help="Parquet file or folder, CSV (plain or compressed), ORC or JSON lines.")
]
Out = Annotated[Path, typer.Option(help="The file to write; it ends with .parquet or .csv.")]
Model = Annotated[
    str,
    typer.Option(
        help="best (the leader on the validation rows), the name of a model (trees, neural, blend, ...), "
        "or that of a trial."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only notes and errors.")]


def predict(
    run_dir: RunDir,
    source: Source,
    out: Out,
    model: Model = "best",
    keep_columns: Annotated[
        bool, typer.Option("--keep-columns", help="Write the source's columns before the predictions.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a table with a model of a finished run."""
    from sparkgpu.core.table.source import find_source
    from sparkgpu.predict.apply import predict_targets
    from sparkgpu.predict.fitted import FittedModel, load
    from sparkgpu.predict.output import check_output
    from sparkgpu.present.terminal.commands import counting, predicted_json, show_predicted

    check_output(out)  # before the seconds of loading
    find_source(source)
    with counting(quiet) as progress:
        fitted = load(run_dir, model)
        models = [fitted] if isinstance(fitted, FittedModel) else [*fitted.models.values()]
        outcomes = predict_targets(models, source, out, keep_columns=keep_columns, progress=progress)
    for one, outcome in zip(models, outcomes, strict=True):
        show_predicted(one, outcome, out, quiet=quiet or as_json)
    if as_json:
        found = [predicted_json(one, outcome, out) for one, outcome in zip(models, outcomes, strict=True)]
        typer.echo(found[0] if len(found) == 1 else f"[{', '.join(found)}]")


def explain(
    run_dir: RunDir,
    source: Source,
    out: Out,
    model: Model = "best",
    rows: Annotated[
        int | None,
        typer.Option(min=1, help="Explain so many rows, from the first one on; without it, up to 1,000."),
    ] = None,
    row: Annotated[
        int | None, typer.Option(min=0, help="Explain only this row of the table; the first one is 0.")
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            min=2,
            help="Rows of the run beside which networks and blends are explained; four times as many halve "
            "the errors.",
        ),
    ] = 16,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the first of these rows, as a waterfall, into this .png.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Say what each column added to the predictions of a table's rows."""
    from sparkgpu.core.table.source import find_source
    from sparkgpu.predict.explain.file import explain_source
    from sparkgpu.predict.fitted import FittedModel
    from sparkgpu.predict.output import check_output
    from sparkgpu.present.terminal.commands import counting, predicted_json, show_predicted

    check_output(out)  # before the seconds of loading
    if picture is not None:
        check_output(picture, "--picture", (".png",))
    find_source(source)
    with counting(quiet) as progress:
        fitted = FittedModel(run_dir, model)
        found, line, values = explain_source(
            fitted, source, out, rows=rows, row=row, samples=samples, progress=progress
        )
    if picture is not None:
        from sparkgpu.present.pictures.waterfall import waterfall

        waterfall(line, values, fitted.target).save(picture)
    show_predicted(fitted, found, out, quiet=quiet or as_json)
    if as_json:
        typer.echo(predicted_json(fitted, found, out))


def export(
    run_dir: RunDir,
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


def refit(
    run_dir: RunDir,
    more: Annotated[
        str | None, typer.Option(metavar="TABLE", help="New rows, with the target, to train on as well.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The new run directory; without it, that of the run with -refit.")
    ] = None,
    gpus: Gpus = None,
    cpu_lanes: CpuLanes = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the folder, notes and errors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train the models of a finished run once more, on all of its rows, with the settings that it found."""
    from sparkgpu.present.terminal.display import open_display
    from sparkgpu.runs.refit import refit as train

    with redirect_stdout(sys.stderr) if as_json else nullcontext(), open_display(quiet) as display:
        found = train(run_dir, display, more=more, out=out, gpus=gpus, cpu_lanes=cpu_lanes)
    assert found.results.refit is not None
    about = {"out": str(found.paths.root), **found.results.refit.model_dump(), "notes": found.notes}
    typer.echo(json.dumps(about, indent=2) if as_json else found.paths.root)
    for note in (found.results.refit.sentence, *found.notes):
        say(f"sparkgpu: note: {clean(note)}\n", sys.stderr)
