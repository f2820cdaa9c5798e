"""Trains the models of a finished run once more, on all of its rows: ``sparkgpu refit``.

Rows of the validation and the test split, and new rows, join those of training. Nothing is chosen any more:
settings are those of the run, and each model takes as many trees or epochs as the run found best for it. So
no row is left to measure on. Figures, weights, thresholds and intervals stay those of the run.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import ClusterConfig, RunConfig
from sparkgpu.core.config.toml import keyed
from sparkgpu.core.errors import ConfigError, DataError, TrialError
from sparkgpu.core.host.devices import choose_devices, find_machine
from sparkgpu.core.host.reservations import reserved_ports, scratch_folder
from sparkgpu.core.plan.make_plan import make_plan
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.trials import TrialSpec
from sparkgpu.core.rundir.files import read_record, write_json, write_text
from sparkgpu.core.rundir.metrics_json import RefitInfo, Results, finished_results, write_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.records import FitRecord
from sparkgpu.core.table.predictions import read_predictions, write_predictions
from sparkgpu.core.table.schema import TableSchema, read_schema
from sparkgpu.core.table.source import Source, find_source
from sparkgpu.core.table.writer import SplitFile, slots, table_rows
from sparkgpu.core.words import counted, listed
from sparkgpu.lanes.worker_supervisor import supervised_workers
from sparkgpu.predict.readers import reader_of, refusing_unreadable
from sparkgpu.prepare.encoding import Encoder, labels, load_made
from sparkgpu.prepare.target import training_weights
from sparkgpu.present.terminal.display import Display
from sparkgpu.runs.folder import for_cpu, resumed_config, run_folder
from sparkgpu.runs.provenance import engine_with_cuda
from sparkgpu.runs.reporting import make_report
from sparkgpu.score.calibration import scaled

_FOLD_SEEDS = 1_000
"""The models of several folds now have the same rows, so each gets a seed of its own."""
_NOT_TAKEN = ("report", "exports", "running.json", "hang.log", "model.*", "checkpoints", "ranks", "gang")


@dataclass(frozen=True, kw_only=True)
class Refitted:
    """The new run directory, its results, and what the user should know about the new rows."""

    paths: RunPaths
    results: Results
    notes: tuple[str, ...]


def refit(
    run_dir: str | Path,
    display: Display,
    *,
    more: str | None = None,
    out: Path | None = None,
    gpus: str | list[str] | None = None,
    cpu_lanes: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Refitted:
    """Train the finished models of a run on all its rows and on those of the table `more`.

    The new run directory `out` (default: that of the run with ``-refit``) is a copy of the run's, with other
    models. Raises `ConfigError` if `run_dir` is no finished run or a refitted one, `DataError` if `more`
    cannot be read, and `TrialError` if a model cannot be trained; then no folder is left.
    """
    started, begin = time.time(), time.monotonic()
    before = RunPaths(root=Path(run_dir).resolve())
    results, schema = finished_results(before), read_schema(before)
    if not results.done():
        raise ConfigError(f"{run_dir}: no model of this run finished. Give the folder of a finished run.")
    if schema.other_targets:
        raise ConfigError(
            f"{run_dir}: its network learned {listed(schema.other_targets)} as well, and a refit takes one "
            "target. Start a new run with this target alone."
        )
    for trial in results.done():
        before.trial(trial.name).check()
    config = resumed_config(before.root, keyed(gpus=gpus, cpu_lanes=cpu_lanes))
    # Time is not limited, temperatures are known, and the table lies here, wherever Spark made it.
    changed: dict[str, Any] = {"time_limit": None, "calibrate": False, "cluster": ClusterConfig()}
    if read_record(before.plan, Plan).master is not None:  # over executors, which do not train here
        changed["neural"] = config.neural.model_copy(update={"strategy": "auto", "model_parallel": None})
    config = config.model_copy(update=changed)
    new_rows = None if more is None else find_source(more, schema.dialect)
    machine = find_machine()
    devices = choose_devices(
        machine, gpus=config.devices.gpus, cpu_lanes=config.devices.cpu_lanes, environ=environ
    )
    on_gpu = devices[0].kind == "cuda"
    config = config if on_gpu else for_cpu(config)
    source = Source(name=schema.source, location=str(before.split("train")), format="parquet")
    target = out or before.root.with_name(f"{before.root.name}-refit")
    with (
        reserved_ports(len(devices)) as ports,
        run_folder(config, target, source, started, machine, resume=False, warn=display.warning) as paths,
        _removed_on_error(paths.root),
    ):
        plan = make_plan(
            config, machine, devices, ports, source=source,
            cuda_engine=engine_with_cuda() if on_gpu else None,
        )  # fmt: skip
        plan = plan.model_copy(update={"trials": tuple(_again(before, results, plan))})
        training = RunPaths(root=paths.root / "training")
        added, notes = _write_table(before, training, schema, new_rows)
        write_text(training.config, config_io.dump(config), mode=0o600)
        write_json(training.plan, plan)
        display.plan(plan, schema.source, schema.target)
        _train(training, plan, config, display, environ)
        _take_models(before, training, paths, results, schema)
        found = RefitInfo(
            run=str(before.root),
            rows=schema.rows + added,
            added_rows=added,
            refit_s=round(time.monotonic() - begin, 3),
        )
        caveats = (*results.comparison.caveats, found.sentence)
        results = results.model_copy(
            update={
                "run": results.run.model_copy(update={"name": paths.root.name}),
                "comparison": results.comparison.model_copy(update={"caveats": caveats}),
                "refit": found,
            }
        )
        write_results(paths, results)
        _, lacking = make_report(paths, full=False)
    return Refitted(paths=paths, results=results, notes=(*notes, *lacking))


@contextmanager
def _removed_on_error(folder: Path) -> Iterator[None]:
    """Half a copy with half of the models would look like a run."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _again(before: RunPaths, results: Results, plan: Plan) -> Iterator[TrialSpec]:
    """The trials of the run that finished, each with the settings and the length that it found."""
    done = {trial.name: trial for trial in results.done()}
    for spec in plan.trials:
        if spec.name not in done:
            continue
        record = read_record(before.trial(spec.name).fit, FitRecord)
        fixed: dict[str, Any] = dict(record.search.setting) if record.search else {}
        length = max(1, record.best_iteration)
        if spec.branch == "trees":
            sizes = ("max_depth", "max_leaves")  # the run may have tried two
            fixed |= {key: record.parameters[key] for key in sizes if key in record.parameters}
            fixed |= {"ntrees": length, "early_stopping_rounds": 0, "try_smaller": False}
        elif spec.engine == "torch":
            if done[spec.name].steps == record.most_steps:  # to its end: which epoch was best is mostly noise
                length = record.most_steps or length
            fixed |= {"epochs": length, "patience": 0}
        seed = spec.seed + _FOLD_SEEDS * (spec.fold or 0)
        update = {"engine": done[spec.name].engine, "probed": False, "fold": None, "settings": 0}
        yield spec.model_copy(update={**update, "seed": seed, "fixed": fixed})


def _write_table(
    before: RunPaths, training: RunPaths, schema: TableSchema, more: Source | None
) -> tuple[int, tuple[str, ...]]:
    """The table to train on: all rows in split train; for curves, the old validation or test rows."""
    train = training.split("train")
    train.mkdir(parents=True)
    for place, split in enumerate(("train", "valid", "test")):
        for file in sorted(before.split(split).glob("*.parquet")):
            shutil.copyfile(file, train / f"{place}-{file.name}")
    watched = before.split("valid")
    shutil.copytree(watched if watched.is_dir() else before.split("test"), training.split("valid"))
    shutil.copytree(before.split("test"), training.split("test"))
    added, notes = (0, ()) if more is None else _add_rows(before, train, schema, more)
    splits = {**schema.splits, "train": schema.rows + added}
    write_json(training.schema, schema.model_copy(update={"splits": splits, "folds": None}))
    return added, notes


def _add_rows(
    before: RunPaths, train: Path, schema: TableSchema, more: Source
) -> tuple[int, tuple[str, ...]]:
    """Write new rows as the run's pipeline makes them; their number, and what was unusual in them."""
    encoder = Encoder(schema, load_made(before.table, schema.features))
    own = [schema.target, *([schema.weight] if schema.weight else [])]
    file, read, refused = SplitFile(train, "3-more.parquet"), 0, 0
    first = schema.rows + schema.rows_refused
    with refusing_unreadable(more):
        for batch in filter(len, reader_of(more)(more, list(dict.fromkeys([*encoder.columns, *own])))):
            if read == 0:
                encoder.check(batch.schema.names, more.name)
                if absent := [name for name in own if name not in batch.schema.names]:
                    what = listed(map(repr, absent))
                    raise DataError(f"{more.name}: it lacks {what}, which models learn from. Add it.")
            label_N = labels(batch.column(schema.target), schema)
            has_N = label_N >= 0 if schema.classes else np.isfinite(label_N)
            rows = encoder.rows(batch, first=first + read)
            weight_N = training_weights(schema, batch, np.where(has_N, label_N, 0).astype(np.int64))
            if weight_N is not None:
                has_N &= np.isfinite(weight_N)
            row_N = np.flatnonzero(has_N)
            slot_NF = slots(schema.features, rows.part(row_N))
            file.add(
                table_rows(
                    schema.features, rows.row_id_N[row_N], label_N[row_N],
                    None if weight_N is None else weight_N[row_N], None, slot_NF,
                )
            )  # fmt: skip
            read, refused = read + batch.num_rows, refused + batch.num_rows - len(row_N)
    if read == refused:
        raise DataError(
            f"{more.name}: none of its {read:,} rows has a {schema.target!r} that the run knows, so there is "
            "nothing to learn. Give rows with a target."
        )
    file.close()
    notes = encoder.findings.sentences()
    if refused:
        what = f"a {schema.target!r} that the run knows{', and a weight' if schema.weight else ''}"
        notes.insert(0, f"{counted(refused, 'row')} of {more.name} without {what} are left out")
    return read - refused, tuple(notes)


def _train(
    training: RunPaths, plan: Plan, config: RunConfig, display: Display, environ: Mapping[str, str]
) -> None:
    with (
        scratch_folder() as scratch,
        supervised_workers(training, plan, config, scratch=scratch, source=None, environ=environ) as workers,
    ):
        outcome = workers.follow(display.event, lambda: None, iter(()))
    for name, reason in outcome.failed.items():
        raise TrialError(f"{name} could not be trained again, so nothing was written: {reason}")


def _take_models(
    before: RunPaths, training: RunPaths, paths: RunPaths, results: Results, schema: TableSchema
) -> None:
    """Make `paths` a copy of the run with the new models; their predictions are for exports to compare."""
    shutil.copytree(before.root, paths.root, ignore=shutil.ignore_patterns(*_NOT_TAKEN), dirs_exist_ok=True)
    for trial in results.done():
        old, new = paths.trial(trial.name), training.trial(trial.name)
        for file in new.root.glob("model.*"):
            file.replace(old.root / file.name)
        found = read_predictions(new.predictions, schema)
        if trial.temperature is not None:
            by = trial.temperature
            found = {split: (row_id_N, scaled(values, by)) for split, (row_id_N, values) in found.items()}
        write_predictions(old.refitted, found, schema)
        old.finish()
    shutil.rmtree(training.root)
