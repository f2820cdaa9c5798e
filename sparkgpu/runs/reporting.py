"""Makes the report of a run whose results are written: profile of the table, explanations, then the page.

The models are explained in a process of its own, which may load torch, while this process looks at the table.
Limits: a failure of either costs its section of the page and is said in one line; it never costs the page.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.processes import end_groups
from sparkgpu.core.plan.plan import Plan
from sparkgpu.core.plan.time_limit import LEAST_EXPLAINED_S, PAGE_S
from sparkgpu.core.rundir.advice import AdviceRecord, BenchRecord
from sparkgpu.core.rundir.explanations import Explanations
from sparkgpu.core.rundir.files import Record, read_optional, read_record
from sparkgpu.core.rundir.metrics_json import Results, write_results
from sparkgpu.core.rundir.paths import RunPaths, refuse_planted
from sparkgpu.core.rundir.profile import TableProfile
from sparkgpu.core.rundir.targets import read_targets
from sparkgpu.core.table.schema import TableSchema
from sparkgpu.runs.checks import with_table

_MOST_S = 30.0  # of the process, without a limit
_OVERTIME_S = 15.0
"""Without a limit the process may finish a prediction that it has begun, on a busy machine."""


def make_report(
    paths: RunPaths, *, full: bool, left_s: float = math.inf, checks: bool = False
) -> tuple[Path, tuple[str, ...]]:
    """Write the report; with `full` also what it lacks of ``profile.json`` and ``explanations.json``.

    The `checks` of the table, which are in ``profile.json``, join those in ``metrics.json``. `left_s` are the
    seconds that the run has left. Returns the page and a sentence for each part that could not be made.
    Raises `ConfigError` if the folder holds no run.
    """
    from sparkgpu.present.report import build
    from sparkgpu.present.targets import build_overview
    from sparkgpu.score.profile import write_profile

    refuse_planted(paths)
    if (index := read_targets(paths)) is not None:
        each = [make_report(paths.target(entry.folder), full=full) for entry in index.targets] if full else []
        return build_overview(paths, index), tuple(note for _, notes in each for note in notes)
    notes = _unreadable(paths)
    if not ((full or checks) and paths.schema.is_file() and paths.metrics.is_file()):
        return build(paths), tuple(notes)
    explaining = _explaining(paths, left_s, notes) if full else nullcontext(lambda: None)
    with explaining as explained:
        profile = read_optional(paths.profile, TableProfile)
        if profile is None:
            try:
                profile = write_profile(paths)
            except (OSError, ValueError, ArithmeticError) as error:
                notes.append(f"the report lacks the checks of the table: {error}")
        results = read_optional(paths.metrics, Results)
        if results is not None and results.checks:
            write_results(paths, with_table(results, profile))
        page = build(paths, explained)
    return page, tuple(notes)


def _unreadable(paths: RunPaths) -> list[str]:
    """A sentence for each file that is damaged, or of another version; the page does without it."""
    kinds: dict[Path, type[Record]] = {
        paths.metrics: Results, paths.plan: Plan, paths.schema: TableSchema, paths.advice: AdviceRecord,
        paths.bench / "bench.json": BenchRecord,
    }  # fmt: skip
    looks: list[Callable[[], object]] = [
        *(partial(read_record, file, kind) for file, kind in kinds.items() if file.is_file()),
        *(paths.trial(done.parent.name).check for done in sorted(paths.root.glob("trials/*/DONE"))),
    ]
    if paths.config.is_file():
        looks.append(partial(config_io.load, file=paths.config))
    notes = []
    for look in looks:
        try:
            look()
        except ConfigError as error:
            notes.append(str(error))
    return notes


def _is_explained(paths: RunPaths) -> bool:
    """Whether there are explanations: not, if the time was too short for any."""
    found = read_optional(paths.explanations, Explanations)
    return found is not None and bool(found.importances)


@contextmanager
def _explaining(paths: RunPaths, left_s: float, notes: list[str]) -> Iterator[Callable[[], None]]:
    """The models are explained at the same time, unless they are already; yields what waits for it."""
    if _is_explained(paths):
        yield lambda: None
        return
    left_s -= PAGE_S
    if left_s < LEAST_EXPLAINED_S:
        notes.append(
            "the time limit left no time to explain the models; `sparkgpu report` on the run's folder does it"
        )
        yield lambda: None
        return
    until = time.monotonic() + min(_MOST_S + _OVERTIME_S, left_s + PAGE_S / 2)
    log = paths.root / "explain.log"
    limit = () if left_s == math.inf else ("--seconds", f"{left_s:.1f}")
    command = (
        sys.executable, "-m", "sparkgpu.predict.explain", str(paths.root),
        "--parent", str(os.getpid()), *limit,
    )  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )  # fmt: skip

    def wait() -> None:
        try:
            status = process.wait(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
            end_groups([process])
        if status == 0:
            log.unlink(missing_ok=True)
        else:
            notes.append(f"the report lacks the explanations of the models; {log} says why")

    try:
        yield wait
    finally:
        end_groups([process])
