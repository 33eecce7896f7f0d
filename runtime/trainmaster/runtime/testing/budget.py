"""Budgets of calls: steps, which are lines of Python that run, and bytes of memory.

Both are counted, not timed, so that a test of them says the same on every machine. A call that exceeds its steps is
ended, be it in a loop that never ends.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any


class OverBudget(BaseException):
    """Raised in the midst of a call that has had its steps; a BaseException, which hardly anybody catches."""


class Budget:
    """Counts what calls of a plugin cost; `around` stands around each of them.

    Args:
        most_steps: The steps after which a call is ended.
    """

    def __init__(self, most_steps: int) -> None:
        self.most_steps = most_steps
        """The steps after which a call is ended."""

        self.steps = 0
        """Of the call with the most of them."""

        self.memory = 0
        """Bytes that the call with the most of them held at one time."""

        self.ended = ""
        """The phase of a call that was ended."""

    def around(self, phase: str, call: Callable[[], Any], arguments: dict[str, Any]) -> Any:  # noqa: ARG002 - as all of its kind
        """Make a call, and count.

        Raises:
            OverBudget: It has had its steps.
        """
        steps = 0

        def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal steps
            if event == "line":
                steps += 1
                if steps > self.most_steps:
                    self.ended = phase
                    raise OverBudget(f"{phase} takes more than {self.most_steps:,} steps")
            return trace

        before, traced = sys.gettrace(), tracemalloc.is_tracing()
        if not traced:
            tracemalloc.start()
        tracemalloc.reset_peak()
        held = tracemalloc.get_traced_memory()[0]
        sys.settrace(trace)
        try:
            return call()
        finally:
            sys.settrace(before)
            self.steps = max(self.steps, steps)
            self.memory = max(self.memory, tracemalloc.get_traced_memory()[1] - held)
            if not traced:
                tracemalloc.stop()
