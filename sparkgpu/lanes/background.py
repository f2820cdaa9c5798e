"""Work in a thread beside the main one, with a result to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")


class InBackground(Generic[ValueT]):
    """Runs a function in a thread; `result` waits for it and re-raises its error."""

    def __init__(self, function: Callable[[], ValueT]) -> None:
        self._value: ValueT
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[], ValueT]) -> None:
        try:
            self._value = function()
        except BaseException as error:
            self._error = error

    def result(self) -> ValueT:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value
