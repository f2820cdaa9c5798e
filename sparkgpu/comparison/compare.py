"""What `sparkgpu compare` prints: one leaderboard for each group of runs with the same test rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparkgpu.comparison.board import Board, Entry, board
from sparkgpu.comparison.page import check_page, write_page
from sparkgpu.comparison.runs import boards_of, read_runs, why_apart
from sparkgpu.report.tables import signed
from sparkgpu.terminal.leaderboard import print_line, show_lines
from sparkgpu.words import metric_title


def compare(folders: Sequence[Path], out: Path) -> Path:
    """Print the leaderboards of the runs in `folders`, and write their page to `out`.

    Raises `ConfigError` if these are not several finished runs, or if the page cannot be written.
    """
    check_page(out)
    runs = read_runs(folders)
    groups = boards_of(runs)
    apart = why_apart(groups)
    boards = [board(group) for group in groups]
    if apart:
        print_line(apart)
    for one in boards:
        print_line("")
        if apart:
            print_line(one.title)
        _show(one)
    page = write_page(out, runs, boards, apart)
    print_line("")
    print_line(f"page  {page}")
    return page


def _show(one: Board) -> None:
    entries = one.entries
    last = {f"{metric_title(one.metric)} minus the reference": [_against(entry) for entry in entries]}
    show_lines(one.metric, [entry.line for entry in entries], [entry.line.run for entry in entries], last)
    print_line(one.verdict)
    print_line(one.note)


def _against(entry: Entry) -> str:
    found = entry.difference
    if found is None or found.ci95[0] is None or found.ci95[1] is None:
        return entry.standing
    if not found.difference:
        return entry.standing
    width = found.ci95[1] - found.ci95[0]
    return f"{signed(found.difference, width)}, {entry.standing}"
