"""The sections of the page, in order. Each is a module with `content` and templates of the same name.

``<id>.html.j2`` is the section on the page; ``<id>.md.j2``, if there is one, the same for ``report.md``. Both
see the values of `content` alone. A section without content is left out, of the table of contents as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparkgpu.report.inputs import Inputs
from sparkgpu.report.sections import data, failures, machine, quality, repeat, result, training, why

Content = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section: `id` names its templates and its place on the page, `title` its heading.

    `content` makes the values of its templates; None leaves the section out. With `explains` it reads the
    explanations of the models, which may still be made while the other sections are.
    """

    id: str
    title: str
    content: Callable[[Inputs], Content | None]
    explains: bool = False


SECTIONS = (
    Section(id="result", title="Result", content=result.content),
    Section(id="quality", title="Quality", content=quality.content),
    Section(id="why", title="Why", content=why.content, explains=True),
    Section(id="failures", title="Where it fails", content=failures.content, explains=True),
    Section(id="data", title="Data", content=data.content),
    Section(id="training", title="Training", content=training.content),
    Section(id="machine", title="Machine", content=machine.content),
    Section(id="repeat", title="Repeat it", content=repeat.content),
)
