"""The first screen: the verdict, the leaderboard, what each model was given, and what to run next."""

from __future__ import annotations

from sparkgpu.config.toml import load
from sparkgpu.errors import ConfigError
from sparkgpu.report import contest_tables, leaderboard, tables
from sparkgpu.report.inputs import Inputs
from sparkgpu.report.next_step import next_steps
from sparkgpu.report.pictures.leaderboard import dots_and_whiskers
from sparkgpu.report.verdict import verdict
from sparkgpu.rundir.files import read_record
from sparkgpu.rundir.profile import TableProfile
from sparkgpu.words import metric_title

_DOUBTS = ("leakage", "duplicates across splits", "drift between splits")


def content(run: Inputs) -> dict[str, object]:
    """The values of the templates."""
    found = run.results
    weight = run.schema.weight
    return {
        "verdict": verdict(found),
        "caveats": [f"{text[0].upper()}{text[1:]}." for text in (*found.comparison.caveats, *_of_table(run))],
        "failures": tables.failures(found),
        "picture": dots_and_whiskers(found, run.intervals),
        "leaderboard": leaderboard.leaderboard(found, run.intervals),
        "given": leaderboard.given(found),
        "steps": next_steps(
            found, folder=str(run.paths.root), by_share=_by_share(run), settings=run.settings_besides
        ),
        "results": tables.results(found),
        "weight_note": "" if weight is None else _weights(weight),
        "comparison": tables.comparison(found),
        "comparison_metric": metric_title(found.comparison.metric),
        "blend_of_one": contest_tables.blend_of_one(found),
        "blend_parts": contest_tables.blend_parts(found),
    }


def _of_table(run: Inputs) -> list[str]:
    """What the checks of the table say against the figures above."""
    if not run.paths.profile.is_file():
        return []
    checks = read_record(run.paths.profile, TableProfile).checks
    failed = [check.name for check in checks if check.name in _DOUBTS and not check.passed]
    if not failed:
        return []
    return [f"the table raises doubts about these figures: {' and '.join(failed)} (see Data)"]


def _by_share(run: Inputs) -> bool:
    """Whether the test rows are a share of all rows, rather than chosen by a column."""
    try:
        return run.paths.config.is_file() and load(file=run.paths.config).split.kind != "column"
    except (ConfigError, OSError):
        return False


def _weights(column: str) -> str:
    return (
        f"Column {column} weights the rows in every metric, in the intervals and in the weights of the blend."
    )
