"""An engine that compiles an expression when it is evaluated first: an object needs few of the rules of its schema.

For definitions that are known to compile: what is wrong with an expression comes to light as late.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.devcluster.cel.engines.choosing import default_engine
from trainmaster.devcluster.cel.engines.interface import Engine, Program


@functools.cache
def deferring_engine() -> Engine:
    """Return the default engine with its work put off; raises EngineMissing."""
    return _DeferringEngine(default_engine())


class _DeferringEngine:
    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self.nests_times = engine.nests_times
        self.has_optionals = engine.has_optionals
        self._engine = engine

    def compile(self, expression: str, variables: Mapping[str, str], result: str) -> Program:
        return _Deferred(lambda: self._engine.compile(expression, variables, result))


class _Deferred:
    def __init__(self, compile_it: Callable[[], Program]) -> None:
        self._compile = compile_it
        self._program: Program | None = None

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        if self._program is None:
            self._program = self._compile()
        return self._program.evaluate(variables)
