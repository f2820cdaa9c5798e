"""A run as HTML for a notebook: plain tags without style or script, so that it shows on any host and theme.

All text from the user's data is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from sparkgpu.rundir.results import Results
from sparkgpu.score.standings import standings, training
from sparkgpu.words import clean, metric_title, number_text, seconds_text


def run_html(results: Results, verdict: str, report: str) -> str:
    """The verdict, the models with their test metrics, what to know about them, and where the report is."""
    found = standings(
        [
            model if model.averaged is None else model.model_copy(update={"metrics": model.averaged})
            for model in results.models
        ],
        "test",
    )
    heads = ["<th></th>"]
    heads += [f'<th title="{escape(metric)}">{escape(metric_title(metric))}</th>' for metric in found]
    heads += ["<th>mean fit time</th>", "<th>trained</th>"]
    rows = []
    for place, model in enumerate(results.models):
        if model.status == "left out":
            continue
        cells = [_bold(number_text(of[place].value), of[place].is_best) for of in found.values()]
        done = results.done(model.name)
        cells.append(seconds_text(sum(trial.fit_s for trial in done) / len(done)) if done else "–")
        cells.append(escape(training(results, model.name) or "–"))
        name = _bold(escape(clean(model.name)), model.name == results.comparison.leader)
        state = "" if model.status == "done" else f" ({escape(model.status)})"
        rows.append(f"<tr><th>{name}{state}</th>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    notes = [f"{text[0].upper()}{text[1:]}." for text in results.comparison.caveats]
    notes += [f"{trial.name} failed: {trial.error}" for trial in results.failed]
    return (
        f"<p><b>{escape(clean(verdict))}</b></p>"
        f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        "<p>Scores on the test rows; the best of a column is bold.</p>"
        f"{_listed([pair.sentence for pair in results.comparison.pairs])}"
        f"{_listed(notes)}<p>report: {escape(report)}</p>"
    )


def _listed(notes: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(clean(note))}</li>' for note in notes)}</ul>" if notes else ""


def _bold(text: str, on: bool) -> str:
    return f"<b>{text}</b>" if on else text
