"""What to run next, from what a run has shown: commands to copy, each with its reason. Pure functions.

Limits: at most `MOST` steps, the most promising first; using the model is always one of them. A command
repeats the run with its own configuration and one change, so it names the run directory.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparkgpu.config.models import OWN
from sparkgpu.config.registry.engines import branch_of
from sparkgpu.rundir.results import Results
from sparkgpu.words import counted, seconds_text

MOST = 3
_FEW_ROWS = 2000  # of the test split: its interval is wide enough to hide a difference that matters
_LARGE_SHARE = 0.3
_LIMITS = {"trees": ("trees", "ntrees"), "neural": ("epochs", "epochs")}


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """A command and the sentence that gives its reason."""

    reason: str
    command: str


def next_steps(
    found: Results, *, folder: str, by_share: bool = True, settings: str = ""
) -> tuple[NextStep, ...]:
    """The steps after the run in `folder`; `by_share`: its test rows are a share of all, by no column.

    `settings` are those that a repetition needs besides its ``run.toml``.
    """
    use = _use(found, folder)
    better = [*_mend(found, folder), *_train_longer(found, folder), *_use_devices(found)]
    better += _more_evidence(found, folder, by_share)
    kept = [_with(step, settings) for step in (better[: MOST - 1] if use else better[:MOST])]
    return (*kept, *((use,) if use else ()))


def resume(folder: str) -> str:
    """The command that trains what is missing in `folder`."""
    return f"sparkgpu run --resume --out {shlex.quote(folder)}"


def _with(step: NextStep, settings: str) -> NextStep:
    if not settings or not step.command.startswith("sparkgpu run "):
        return step
    return replace(step, command=f"{step.command} {settings}")


def _again(folder: str, change: str) -> str:
    return f"sparkgpu run --config {shlex.quote(f'{folder}/run.toml')} {change}"


def _mend(found: Results, folder: str) -> Iterator[NextStep]:
    failed = found.failed
    if not failed:
        return
    which = failed[0].name if len(failed) == 1 else f"{counted(len(failed), 'trial')}"
    error = " ".join(trial.error for trial in failed).lower()
    batch = [trial for trial in failed if branch_of(trial.engine) == "neural"]
    if "out of memory" in error and batch:
        yield NextStep(
            reason=f"{which} failed for lack of memory: smaller micro-batches need less.",
            command=f"{resume(folder)} --set neural.micro_batch_size=256",
        )
    elif "out of memory" in error or "heap space" in error:
        yield NextStep(
            reason=f"{which} failed for lack of memory: fewer lanes leave more for each.",
            command=f"{resume(folder)} --cpu-lanes 1"
            if all("cpu" in trial.devices for trial in failed)
            else resume(folder),
        )
    else:
        yield NextStep(
            reason=f"{which} failed: with its cause mended, this trains only what is missing.",
            command=resume(folder),
        )


def _train_longer(found: Results, folder: str) -> Iterator[NextStep]:
    done = found.done()
    limit = found.run.time_limit_s
    late = sorted({trial.model for trial in done if trial.out_of_time})
    if late and limit:
        longer = _round_time(2 * limit)
        yield NextStep(
            reason=f"The time limit of {seconds_text(limit)} ended the training of {', '.join(late)}.",
            command=_again(folder, f"--time-limit {longer}"),
        )
        return
    for model in sorted(dict.fromkeys(trial.model for trial in done), key=lambda name: name not in OWN):
        cut = [trial for trial in done if trial.model == model and trial.still_improving and trial.most_steps]
        if not cut:
            continue
        most = max(trial.most_steps or 0 for trial in cut)
        branch = branch_of(cut[0].engine)
        unit, key = _LIMITS[branch]
        reason = f"{_name(model)} still improved at the limit of {most:,} {unit}"
        if model in OWN:
            yield NextStep(reason=f"{reason}.", command=_again(folder, f"--set {branch}.{key}={2 * most}"))
        else:
            yield NextStep(
                reason=f"{reason}: raise {key} = {most} of this model in a copy of run.toml.",
                command="sparkgpu run --config copy_of_run.toml",
            )


def _use_devices(found: Results) -> Iterator[NextStep]:
    if any(caveat.startswith("idle devices") for caveat in found.comparison.caveats):
        yield NextStep(
            reason="Devices idled while models trained: which strategy suits this table is advised here.",
            command=f"sparkgpu advise {shlex.quote(found.data.source)}",
        )


def _more_evidence(found: Results, folder: str, by_share: bool) -> Iterator[NextStep]:
    pair = next((p for p in found.comparison.pairs if {p.a, p.b} == set(OWN)), None)
    rows, every = found.data.splits.get("test", 0), sum(found.data.splits.values())
    if pair is None or pair.verdict != "tie" or rows >= _FEW_ROWS:
        return
    if by_share and rows < _LARGE_SHARE * every - 1:
        yield NextStep(
            reason=f"Trees and network are level on {counted(rows, 'test row')}: more of them tell more.",
            command=_again(folder, f"--set split.test={_LARGE_SHARE}"),
        )
        return
    trials = max(len(found.done(name)) for name in OWN)
    yield NextStep(
        reason=f"Trees and network are level on {counted(rows, 'test row')}: more seeds average their luck.",
        command=_again(folder, f"--repeats {max(5, 2 * trials)}"),
    )


def _use(found: Results, folder: str) -> NextStep | None:
    leader = found.comparison.leader
    if leader is None:
        return None
    reason = "the blend" if leader == "blend" else _name(leader)
    return NextStep(
        reason=f"Predict new rows with {reason[0].lower() + reason[1:]}, the best on the validation rows.",
        command=f"sparkgpu predict {shlex.quote(folder)} new_rows.parquet --out predictions.parquet",
    )


def _name(model: str) -> str:
    return {"trees": "The trees", "neural": "The network"}.get(model, model)


def _round_time(seconds: float) -> str:
    return f"{math.ceil(seconds / 60)}m" if seconds >= 60 else f"{math.ceil(seconds)}s"
