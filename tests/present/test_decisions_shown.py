"""Decisions by a rule stand on the page, in report.md, on the terminal and on the model cards."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from io import StringIO
from pathlib import Path

import pytest
from made_run import MadeRun
from made_table import write_made_results
from page import Page

from sparkgpu.core.config.rule_keys import DecisionConfig
from sparkgpu.core.rundir.files import write_json
from sparkgpu.core.rundir.metrics_json import Results, read_results
from sparkgpu.core.rundir.paths import RunPaths
from sparkgpu.core.table.schema import Task
from sparkgpu.core.words import number_text
from sparkgpu.predict.export import notes_on
from sparkgpu.present.cards import card_path
from sparkgpu.present.report import build
from sparkgpu.present.terminal.display import open_display
from sparkgpu.score.decision import rule_of

COSTS = {
    "binary": {"yes": {"no": 5.0}, "no": {"yes": 1.0}},
    "multiclass": {"a": {"b": 1.0, "c": 9.0}, "b": {"a": 1.0}, "c": {"a": 2.0}},
}


def decided_run(root: Path, task: Task, rule: str) -> tuple[RunPaths, Results]:
    made, paths = MadeRun(task), RunPaths(root=root)
    decision = rule_of(DecisionConfig(rule=rule, costs=COSTS[task] if rule == "cost" else {}), made.classes)
    found = made.evaluated(root, decision=decision)
    write_made_results(
        paths, made.schema, models=found.models, trials=found.trials, comparison=found.comparison
    )
    write_json(paths.plan, made.plan)
    write_json(paths.schema, made.schema)
    return paths, read_results(paths)


@pytest.mark.parametrize(
    ("task", "rule", "goal", "drawn"),
    [
        ("binary", "cost", "mean cost", {"mean cost"}),
        ("binary", "recall>=0.9", "recall of yes", {"F1", "recall", "precision"}),
        ("binary", "balanced_accuracy", "balanced accuracy", {"balanced accuracy"}),
        ("multiclass", "cost", "mean cost", set()),
    ],
)
def test_the_page_shows_what_the_rule_gives_and_the_curve_over_the_threshold(
    tmp_path: Path, only_sections: Callable[..., None], task: Task, rule: str, goal: str, drawn: set[str]
) -> None:
    only_sections("quality")
    paths, results = decided_run(tmp_path, task, rule)
    found = Page(build(paths).read_text(encoding="utf-8"))
    of_trees = next(model.decision for model in results.models if model.name == "trees")
    assert of_trees is not None
    plain = f"{goal} by the most probable class"
    names = ["decisions", "rule", "threshold", f"{goal}, test", plain, "difference"]
    heads = [name for name in names if name != "threshold" or of_trees.threshold is not None]
    assert found.row("decisions")[:-1] == heads
    row = next(row for row in found.rows if row[:2] == ["trees", of_trees.rule])
    cells = dict(zip(found.row("decisions"), row, strict=True))
    assert float(cells[f"{goal}, test"]) == pytest.approx(of_trees.value, rel=1e-3)
    assert float(cells[plain]) == pytest.approx(of_trees.plain, rel=1e-3)
    low, high = (float(end.replace("−", "-")) for end in cells["95 % interval"].split(" to "))
    assert (low, high) == pytest.approx(of_trees.ci95, abs=0.01)
    assert low <= float(cells["difference"].replace("−", "-")) <= high
    card = unescape(card_path(paths, "trees").read_text(encoding="utf-8"))
    assert f"it decides for {of_trees.in_words()}" in card
    assert f"{goal}, as decided" in card
    markdown = (paths.report / "report.md").read_text(encoding="utf-8")
    assert "### Decisions" in markdown
    assert ("(thresholds.png)" in markdown) == (paths.report / "thresholds.png").is_file() == bool(drawn)
    if drawn:
        assert cells["threshold"] == f"yes from {number_text(of_trees.threshold)}"
        assert "thresholds-1-title" in found.ids
        assert all(name in found.words for name in drawn)
        assert f"which the validation rows chose by {rule}" in found.words


def test_the_terminal_shows_the_decisions_of_each_model(tmp_path: Path) -> None:
    paths, results = decided_run(tmp_path, "binary", "cost")
    stream = StringIO()
    with open_display(True, stream) as display:
        display.finish(results, paths)
    lines = stream.getvalue().splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("decisions"))
    assert "mean cost, test" in lines[place] and " yes from 0." in lines[place + 2]
    assert [line.split()[0] for line in lines[place + 2 : place + 5]] == ["trees", "neural", "blend"]


@pytest.mark.parametrize(
    ("task", "rule", "words"),
    [
        ("binary", "f1", "yes from a probability of {:.4f} on, by the rule f1"),
        ("multiclass", "cost", "the class with the least expected cost, by decision.costs"),
    ],
)
def test_an_export_says_that_the_run_decides_otherwise(
    tmp_path: Path, task: Task, rule: str, words: str
) -> None:
    paths, results = decided_run(tmp_path, task, rule)
    decision = next(model.decision for model in results.models if model.name == "trees")
    assert decision is not None
    (note,) = notes_on(paths.root, "trees-0", "onnx")
    assert note == f"the file gives probabilities; this run decides for {words.format(decision.threshold)}."
    assert list(notes_on(paths.root, "trees-0", "mlflow")) == []


def test_without_a_rule_nothing_speaks_of_decisions(plain_run: RunPaths) -> None:
    page = (plain_run.report / "index.html").read_text(encoding="utf-8")
    assert "Decisions" not in page
