"""Match conditions of webhooks: CEL expressions over `object`, `oldObject` and `request`."""

from __future__ import annotations

import functools

from trainmaster.devcluster.apiserver.schema.cel.compiler import compile_program
from trainmaster.devcluster.apiserver.schema.cel.parser import tokens
from trainmaster.devcluster.apiserver.schema.cel.program import Program

_VARIABLES = {"object": "dyn", "oldObject": "dyn", "request": "dyn"}
_AUTHORIZER = "authorizer"


@functools.lru_cache(maxsize=1024)
def compile_condition(expression: str) -> Program:
    """Compile a condition; raises CompilationFailed."""
    return compile_program(expression, _VARIABLES, "bool")


def asks_authorizer(expression: str) -> bool:
    """Return whether a condition depends on what the user may do, which is not known here."""
    return any(token.text == _AUTHORIZER for token in tokens(expression))
