"""The page over the reports of several targets: the leaderboard of each, and the way to its report."""

from __future__ import annotations

from pathlib import Path

from sparkgpu import __version__
from sparkgpu.core.rundir.files import write_text
from sparkgpu.core.rundir.metrics_json import finished_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.rundir.targets import TargetIndex
from sparkgpu.core.words import clean, listed, short_source
from sparkgpu.present.leaderboard import all_metrics
from sparkgpu.present.report import Kind, page_of, render
from sparkgpu.present.result_tables import Fact
from sparkgpu.present.verdict import verdict


def build_overview(paths: RunPaths, index: TargetIndex) -> Path:
    """Write ``report/index.html`` and ``report.md`` of a run with several targets; returns the page."""
    found = {entry: finished_results(paths.target(entry.folder)) for entry in index.targets}
    first = next(iter(found.values()))
    names = listed(clean(entry.target) for entry in found)
    frame = {
        "title": f"{names} · {short_source(first.data.source)}",
        "run": paths.root.name,
        "facts": [
            Fact("targets", str(len(found))),
            Fact("features", f"{first.data.num_features:,}"),
            *(Fact(f"rows with {clean(one.data.target)}", f"{one.data.rows:,}") for one in found.values()),
        ],
        "version": __version__,
    }
    page = paths.report / "index.html"
    kinds: tuple[tuple[Kind, Path], ...] = (("md", paths.report / "report.md"), ("html", page))
    for kind, file in kinds:
        sections = [
            (
                entry.folder,
                f"{clean(entry.target)} ({entry.task})",
                render(
                    f"target.{kind}.j2",
                    kind,
                    {
                        "verdict": verdict(results),
                        "leaderboard": all_metrics(results),
                        "failed": [f"{trial.name} failed: {trial.error}" for trial in results.failed],
                        "folder": entry.folder,
                        "target": clean(entry.target),
                    },
                ),
            )
            for entry, results in found.items()
        ]
        write_text(file, page_of(f"report.{kind}.j2", kind, frame, sections))
    return page
