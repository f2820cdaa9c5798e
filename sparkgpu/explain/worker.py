"""A process that holds some models of a run and answers questions about them, one after the other.

Trees and networks live in different processes: their libraries take seconds to import and bring threads of
their own. Nothing here is imported before the process has started; answers go out as soon as they are known,
so that what is done stands when the time is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from sparkgpu.host.collector import importing

if TYPE_CHECKING:
    from sparkgpu.explain.asking import Asked
    from sparkgpu.explain.messages import Answer, Draw, Order, Shuffle
    from sparkgpu.explain.sample import Sample


def serve(line: Connection[Any, Any], order: Order) -> None:
    """Load the models of `order`, then carry out what comes in, until None or the end of the line."""
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        _serve(line, order)


def _serve(line: Connection[Any, Any], order: Order) -> None:
    from sparkgpu.explain.messages import Draw, Ready, Shuffle

    with importing():
        models = list(_load(line, order))
    sample = line.recv()
    models = [model for model in models if _answers(line, model, sample)]
    line.send(Ready())
    while (command := line.recv()) is not None:
        answers: Iterable[Answer] = ()
        if isinstance(command, Shuffle):
            answers = _shuffled(models, sample, command)
        elif isinstance(command, Draw):
            answers = _drawn(models, sample, command)
        for answer in answers:
            line.send(answer)
        line.send(Ready())


def _load(line: Connection[Any, Any], order: Order) -> Iterable[Asked]:
    from sparkgpu.engines.engine import load_fitted
    from sparkgpu.errors import described
    from sparkgpu.explain.asking import Asked
    from sparkgpu.explain.messages import Refused

    for member in order.members:
        try:
            model = load_fitted(member.engine, member.folder, order.schema)
        except Exception as error:  # whatever is wrong with one file, the others can be asked
            line.send(Refused(model=member.name, reason=described(error)["message"]))
            continue
        yield Asked(name=member.name, model=model, temperature=member.temperature, schema=order.schema)


def _answers(line: Connection[Any, Any], model: Asked, sample: Sample) -> bool:
    from sparkgpu.errors import described
    from sparkgpu.explain.messages import Loaded, Refused

    try:
        value = model.ask_first(sample)
    except Exception as error:
        line.send(Refused(model=model.name, reason=described(error)["message"]))
        return False
    line.send(Loaded(model=model.name, value=value, call_s=model.call_s, row_s=model.row_s))
    return True


def _shuffled(models: Iterable[Asked], sample: Sample, order: Shuffle) -> Iterable[Answer]:
    """Round by round, so that the models of one process share its time."""
    for round_ in range(order.rounds):
        for model in models:
            yield from model.drops(sample, order, round_)


def _drawn(models: Iterable[Asked], sample: Sample, order: Draw) -> Iterable[Answer]:
    """Feature by feature: the leading one first."""
    for number in range(len(order.grids)):
        for model in models:
            curve = model.curve(sample, order, number)
            if curve is not None:
                yield curve
