"""Programs: compiled CEL expressions, and what can go wrong with them, in the words of the Kubernetes API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class CompilationFailed(Exception):
    """An expression is wrong; the message says why and shows where."""


class EvaluationFailed(Exception):
    """An expression has no value for these variables."""


class VariableMissing(EvaluationFailed):
    """A variable has no value; `name` says which."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no such key: {name}")
        self.name = name


class BudgetExceeded(EvaluationFailed):
    """An expression takes too long."""


class LibraryMissing(CompilationFailed):
    """There is no library that evaluates expressions; the message says which one, and where it can be had."""


class Program(Protocol):
    """An expression that is ready to be evaluated."""

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Return the value for these variables; raises EvaluationFailed."""


def marked(expression: str, position: int, text: str) -> CompilationFailed:
    """Return the error about a place in an expression, in the form that CEL compilers use."""
    before = expression[:position].rpartition("\n")[2]
    line = expression.count("\n", 0, position) + 1
    shown = expression.split("\n")[line - 1]
    return CompilationFailed(f"ERROR: <input>:{line}:{len(before) + 1}: {text}\n | {shown}\n | {'.' * len(before)}^")


def wrong_type(wanted: str) -> CompilationFailed:
    """Return the error about an expression of another type than it must have."""
    return CompilationFailed(f"cel expression must evaluate to a {wanted}")
