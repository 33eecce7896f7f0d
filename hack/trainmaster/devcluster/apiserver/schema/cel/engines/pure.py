"""The engine on cel-python, which is written in Python: a hundred times slower than the other one.

It checks no types while compiling, only syntax and the names of functions, and knows neither optional values nor
`cel.bind`, nor the functions of CEL's math and encoders extensions: rules that use these are refused.
`has(a.b.c)` is false where a has no b; CEL calls that an error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError, base_functions

from trainmaster.devcluster.apiserver.schema.cel.engines.interface import EvaluationFailed, VariableMissing, marked
from trainmaster.devcluster.apiserver.schema.cel.library import FUNCTIONS, STRING_FUNCTIONS
from trainmaster.devcluster.apiserver.schema.cel.parser import read, tokens

_UNBOUND = re.compile(r"undeclared reference to '(\w+)'")
_MACROS = frozenset({"all", "exists", "exists_one", "filter", "has", "map", "dyn"})
_QUALIFIED = frozenset(function.name for function in FUNCTIONS if "." in function.name)


class PureEngine:
    """Compiles expressions with cel-python."""

    name = "cel-python"
    nests_times = True
    has_optionals = False

    def compile(self, expression: str, variables: Mapping[str, str], result: str) -> _Program:  # noqa: ARG002 - untyped
        """Compile an expression."""
        known = _functions()
        for call in read(expression).calls:
            simple = call.name.rpartition(".")[2]
            if call.name not in _QUALIFIED and simple not in _MACROS and simple not in known:
                raise marked(expression, call.start, f"undeclared reference to '{simple}' (in container '')")
        try:
            tree = _environment().compile(_unqualified(expression))
            program = _environment().program(tree, functions=cast("Any", known))
        except CELParseError as error:
            before = expression.split("\n")[: max((error.line or 1) - 1, 0)]
            position = sum(len(line) + 1 for line in before) + max((error.column or 1) - 1, 0)
            raise marked(expression, min(position, len(expression)), "Syntax error") from error
        return _Program(program, result)


class _Program:
    def __init__(self, program: celpy.Runner, result: str) -> None:
        self._program = program
        self._type: type = bool if result == "bool" else str

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Evaluate the expression."""
        given = {name: _to_cel(value) for name, value in variables.items()}
        try:
            value = _to_plain(self._program.evaluate(given))
        except CELEvalError as error:
            unbound = _UNBOUND.match(str(error.args[0]))
            raise VariableMissing(unbound.group(1)) if unbound else EvaluationFailed(_translate(error)) from error
        if not isinstance(value, self._type):
            raise EvaluationFailed(f"no such overload: the value is of type {type(value).__name__}")
        return value


def _translate(error: CELEvalError) -> str:
    """Put an error in the words of the Go implementation, which the API server uses."""
    text, kind, arguments = (*error.args, None, None)[:3]
    detail = str(arguments[0]) if isinstance(arguments, tuple) and arguments else ""
    if kind is KeyError:
        name = re.search(r"'(.*)'", str(text))
        return f"no such key: {name.group(1) if name else detail}"
    if kind is ZeroDivisionError:
        return "division by zero"
    if kind is IndexError:
        return "index out of bounds"
    if kind is TypeError:
        return detail if detail.startswith("no such overload") else f"no such overload: {text}"
    if kind is ValueError:
        return "integer overflow" if detail == "overflow" else detail
    return f"{text}: {detail}" if detail else str(text)


@functools.cache
def _environment() -> celpy.Environment:
    return celpy.Environment()


@functools.cache
def _functions() -> dict[str, Callable[..., Any]]:
    """Return all functions; those of the library first come to see whether a call is theirs."""
    known: dict[str, Callable[..., Any]] = dict(base_functions)
    known["dyn"] = lambda value: value
    for function in (*STRING_FUNCTIONS, *FUNCTIONS):
        name = function.name.replace(".", "__")
        known[name] = _wrapped(function.call, len(function.parameters), known.get(name))
    return known


def _wrapped(call: Callable[..., Any], count: int, other: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function for CEL values; a call that does not fit goes to the other function of the name."""

    def run(*arguments: Any) -> Any:
        if len(arguments) == count:
            try:
                return _to_cel(call(*map(_to_plain, arguments)))
            except TypeError:
                if other is None:
                    raise
        if other is None:
            raise TypeError
        return other(*arguments)

    return run


def _unqualified(expression: str) -> str:
    """Write `sets.contains(...)` as a plain function: the library has no functions with a namespace."""
    words = tokens(expression)
    changed = list(expression)
    for index in range(len(words) - 3):
        space, dot, name, bracket = (word.text for word in words[index : index + 4])
        is_function = dot == "." and bracket == "(" and f"{space}.{name}" in _QUALIFIED
        if is_function and not (index and words[index - 1].text == "."):
            changed[words[index + 1].start] = "__"
    return "".join(changed)


def _to_cel(value: Any) -> Any:
    match value:
        case list():
            return celtypes.ListType([_to_cel(item) for item in value])
        case dict():
            return celtypes.MapType({celtypes.StringType(name): _to_cel(item) for name, item in value.items()})
        case bytes() | bytearray():
            return celtypes.BytesType(bytes(value))
    return json_to_cel(value)


def _to_plain(value: Any) -> Any:
    match value:
        case celtypes.BoolType():
            return bool(value)
        case celtypes.IntType() | celtypes.UintType():
            return int(value)
        case celtypes.DoubleType():
            return float(value)
        case celtypes.StringType():
            return str(value)
        case list():
            return [_to_plain(item) for item in value]
        case dict():
            return {_to_plain(name): _to_plain(item) for name, item in value.items()}
        case timedelta() | datetime() | bytes():
            return value
    return value
