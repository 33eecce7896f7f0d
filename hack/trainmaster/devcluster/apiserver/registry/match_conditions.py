"""Conditions of admission: CEL expressions over `object`, `oldObject` and `request`, as webhooks have them."""

from __future__ import annotations

import functools

from trainmaster.devcluster.apiserver.schema.cel.engines import CompilationFailed, Program, default_engine
from trainmaster.devcluster.apiserver.schema.cel.parser import tokens

_VARIABLES = {"object": "dyn", "oldObject": "dyn", "request": "dyn"}
_AUTHORIZER = "authorizer"

__all__ = ["CompilationFailed", "asks_authorizer", "compile_condition"]


@functools.lru_cache(maxsize=1024)
def compile_condition(expression: str) -> Program:
    """Compile a condition; raises CompilationFailed."""
    return default_engine().compile(expression, _VARIABLES, "bool")


def asks_authorizer(expression: str) -> bool:
    """Return whether a condition depends on what the user may do, which it cannot be told here."""
    return any(token.text == _AUTHORIZER for token in tokens(expression))
