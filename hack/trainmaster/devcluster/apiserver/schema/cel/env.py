"""The CEL environment: cel-expr-python, which wraps the C++ implementation of CEL, with the functions of Kubernetes.

Checked while compiling: syntax, functions, types as far as they are declared, and the type of the result. Nested loops
end after ten thousand steps. Values of a time or duration inside an object stay texts: the library takes them as whole
variables only, which is why every selected field is a variable of its own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

from trainmaster.devcluster.apiserver.schema.cel.library import ABSENT, FUNCTIONS, Function
from trainmaster.devcluster.apiserver.schema.cel.program import (
    BudgetExceeded,
    CompilationFailed,
    EvaluationFailed,
    Program,
    VariableMissing,
    wrong_type,
)

_TYPES = {
    "bool": cel.Type.BOOL,
    "bytes": cel.Type.BYTES,
    "double": cel.Type.DOUBLE,
    "duration": cel.Type.DURATION,
    "dyn": cel.Type.DYN,
    "int": cel.Type.INT,
    "string": cel.Type.STRING,
    "timestamp": cel.Type.TIMESTAMP,
}
_STATUS = re.compile(r"^[A-Z_]+: |\s*\[[A-Z_]+\]$")
_UNBOUND = re.compile(r'No value with name "(.*)" found in Activation')
_ABSENT = "the embedded cluster has no functions of versions, URLs, addresses and formats; use a real cluster for it"
_UNDECLARED = re.compile(r"undeclared reference to '(\w+)'")
_TRANSLATIONS = (
    (re.compile(r'Key not found in map : "?(.*?)"?'), r"no such key: \1"),
    (re.compile(r"Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile(r"No matching overloads found : (.*)"), r"no such overload: \1"),
    (re.compile(r"divide by zero"), "division by zero"),
)


def compile_program(expression: str, variables: Mapping[str, str], result: str) -> Program:
    """Compile an expression with variables of these types to a value of a type; raises CompilationFailed."""
    environment = _environment(tuple(sorted(variables.items())))
    try:
        compiled = environment.compile(expression)
    except RuntimeError as error:
        text = _STATUS.sub("", str(error))
        if not ABSENT.isdisjoint(_UNDECLARED.findall(text)):
            text += f"\n{_ABSENT}"
        raise CompilationFailed(text) from error
    if compiled.return_type() not in (_TYPES[result], cel.Type.DYN):
        raise wrong_type(result)
    return _Program(compiled)


class _Program:
    def __init__(self, compiled: Any) -> None:
        self._evaluate = compiled.eval

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Evaluate the expression."""
        try:
            result = self._evaluate(data=variables)
        except RuntimeError as error:
            text = _translate(str(error))
            raise (BudgetExceeded if "budget" in text else EvaluationFailed)(text) from error
        value = result.value()
        if not isinstance(value, bool) and result.type() == cel.Type.ERROR:
            text = _translate(str(value))
            raise VariableMissing(unbound.group(1)) if (unbound := _UNBOUND.fullmatch(text)) else EvaluationFailed(text)
        return value


def _translate(text: str) -> str:
    """Put an error of the C++ implementation in the words of the Go implementation, which the API server uses."""
    text = _STATUS.sub("", _STATUS.sub("", text))
    for pattern, replacement in _TRANSLATIONS:
        if match := pattern.fullmatch(text):
            return match.expand(replacement)
    return text


@functools.lru_cache(maxsize=256)
def _environment(variables: tuple[tuple[str, str], ...]) -> Any:
    return cel.NewEnv(
        variables={name: _type(declared) for name, declared in variables},
        extensions=[
            ext_bindings.ExtBindings(),
            ext_encoders.ExtEncoders(),
            ext_math.ExtMath(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
            _kubernetes(),
        ],
    )


@functools.cache
def _kubernetes() -> Any:
    by_name: dict[str, list[Function]] = {}
    for function in FUNCTIONS:
        by_name.setdefault(function.name, []).append(function)
    return cel.CelExtension(
        "kubernetes", [cel.FunctionDecl(name, list(_overloads(same))) for name, same in by_name.items()]
    )


def _overloads(functions: Iterable[Function]) -> Iterable[Any]:
    for function in functions:
        yield cel.Overload(
            id=f"kubernetes_{function.name}_{'_'.join(function.parameters)}_{function.is_method}".replace(".", "_"),
            return_type=_type(function.result),
            parameters=[_type(each) for each in function.parameters],
            is_member=function.is_method,
            impl=function.call,
        )


def _type(text: str) -> Any:
    if text.startswith("list<"):
        return cel.Type.List(_type(text[5:-1]))
    if text.startswith("map<string,"):
        return cel.Type.Map(cel.Type.STRING, _type(text[11:-1]))
    return _TYPES[text]
