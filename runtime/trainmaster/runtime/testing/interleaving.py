"""Two calls at once, line by line in turns: the same each time, and worse than what two free threads do to each other.

Lines of the SDK itself run through; each other line of Python that a plugin runs hands over to the other thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeVar

_OURS: Final = ("trainmaster.runtime.", "pydantic")
_PATIENCE: Final = 0.05
"""Seconds after which a thread goes on all the same: the other one may wait for a lock of the plugin's."""

_Result = TypeVar("_Result")


class Turns:
    """Lets two threads run in turns. `around` stands around each call of a plugin."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._turn = 0
        self._ended: set[int] = set()
        self._me = threading.local()

    def run(self, *functions: Callable[[], _Result]) -> list[_Result | BaseException]:
        """Run two functions to their end, and return what each returned or raised."""
        results: dict[int, _Result | BaseException] = {}

        def work(number: int, function: Callable[[], _Result]) -> None:
            self._me.number = number
            try:
                results[number] = function()
            except BaseException as error:
                results[number] = error
            finally:
                with self._condition:
                    self._ended.add(number)
                    self._condition.notify_all()

        threads = [threading.Thread(target=work, args=each, daemon=True) for each in enumerate(functions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [results[number] for number in range(len(functions))]

    def around(self, phase: str, call: Callable[[], Any], arguments: dict[str, Any]) -> Any:  # noqa: ARG002 - as all of its kind
        """Make a call, handing over at each of its lines."""

        def trace(frame: FrameType, event: str, _arg: Any) -> Any:
            if frame.f_globals.get("__name__", "").startswith(_OURS):
                return None
            if event == "line":
                self._hand_over()
            return trace

        self._hand_over()
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return call()
        finally:
            sys.settrace(before)

    def _hand_over(self) -> None:
        me = self._me.number
        with self._condition:
            self._turn = 1 - me
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._turn == me or 1 - me in self._ended, timeout=_PATIENCE)
            self._turn = me
