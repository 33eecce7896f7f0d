"""The compiler: from an entry of `x-kubernetes-validations` to a rule, or to what is wrong with the entry.

The comparison `self == oldSelf` is made here, and needs no library. The match conditions of webhooks are compiled here,
too: expressions over `object`, `oldObject` and `request`.
"""

from __future__ import annotations

import functools
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from trainmaster.devcluster.apiserver.schema.cel import decltype
from trainmaster.devcluster.apiserver.schema.cel.decltype import PathInvalid, normalize_field_path
from trainmaster.devcluster.apiserver.schema.cel.equality import align, has_unordered, is_equal
from trainmaster.devcluster.apiserver.schema.cel.parser import Selection, find_selections, tokens
from trainmaster.devcluster.apiserver.schema.cel.program import (
    CompilationFailed,
    EvaluationFailed,
    LibraryMissing,
    Program,
    VariableMissing,
)
from trainmaster.devcluster.apiserver.schema.cel.variables import Variable
from trainmaster.runtime.field_errors import ErrorType
from trainmaster.runtime.jsontree import JsonObject

_T = TypeVar("_T")
Selections: TypeAlias = Mapping[str, tuple[Selection, ...]]

_IMMUTABLE = "self==oldSelf"
_LONGEST_MESSAGE = 5 * 1024  # bytes, of an evaluated messageExpression
_REASONS: dict[str, ErrorType] = {
    "FieldValueInvalid": "Invalid",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required",
    "FieldValueDuplicate": "Duplicate",
}


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """Something wrong with a rule; `field` is the part of the entry that it is in."""

    field: str
    kind: ErrorType
    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule."""

    text: str
    """How the rule is called in messages about its evaluation."""
    message: str
    kind: ErrorType
    path: str
    uses_old: bool
    needs_old: bool
    """Whether the rule is skipped without an old value."""
    freezes: bool
    """Whether this is `self == oldSelf`, which holds for what stays as it is."""
    holds: Callable[[Any, Any], bool]
    """Tells whether values, new and old, keep the rule; raises EvaluationFailed."""
    explain: Callable[[Any, Any], str] | None = None
    """Computes the message; raises EvaluationFailed."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a rule stands."""

    schema: JsonObject
    is_resource: bool
    correlates: bool
    """Whether values have an old value at all."""
    deferred: bool = False
    """Whether a rule is compiled when it is evaluated first; what is wrong with it then comes to light as late."""


def compile_rule(entry: JsonObject, scope: Scope) -> Rule | list[RuleProblem]:
    """Compile an entry; everything that is wrong with it is reported."""
    text = str(entry.get("rule", ""))
    problems = list(_text_problems(entry))
    path = ""
    try:
        path = normalize_field_path(entry.get("fieldPath", ""), scope.schema)
    except PathInvalid as error:
        detail = f"fieldPath must be a valid path: {error}"
        problems.append(RuleProblem("fieldPath", "Invalid", entry["fieldPath"], detail))
    if not text.strip():
        return problems
    selections = find_selections(text)
    uses_old = "oldSelf" in selections
    is_optional = entry.get("optionalOldSelf") is True
    if uses_old and not scope.correlates:
        problems.append(
            RuleProblem("rule", "Invalid", text, "oldSelf cannot be used on the uncorrelatable portion of the schema")
        )
    if is_optional and not uses_old:
        is_optional = False
        detail = "may not be set to true when oldSelf is not used in rule"
        problems.append(RuleProblem("optionalOldSelf", "Invalid", True, detail))
    try:
        make = functools.partial(_condition, text, selections, scope, is_optional=is_optional)
        holds = _deferred(make) if scope.deferred else make()
    except CompilationFailed as error:
        problems.append(RuleProblem("rule", "Invalid", entry, _failure(error)))
    explain = None
    if expression := entry.get("messageExpression", ""):
        try:
            make_message = functools.partial(_explanation, expression, scope)
            explain = _deferred(make_message) if scope.deferred else make_message()
        except CompilationFailed as error:
            detail = f"messageExpression {_failure(error)}"
            problems.append(RuleProblem("messageExpression", "Invalid", entry, detail))
    if problems:
        return problems
    message = str(entry.get("message") or "").strip()
    return Rule(
        text=message or text.strip(),
        message=message or f"failed rule: {text.strip()}",
        kind=_REASONS.get(entry.get("reason", ""), "Invalid"),
        path=path,
        uses_old=uses_old,
        needs_old=uses_old and not is_optional,
        freezes=_freezes(text),
        holds=holds,
        explain=explain,
    )


def _deferred(make: Callable[[], Callable[[Any, Any], _T]]) -> Callable[[Any, Any], _T]:
    """Make a function when it is called first."""
    made = functools.cache(make)

    def call(new: Any, old: Any) -> _T:
        return made()(new, old)

    return call


def _freezes(text: str) -> bool:
    return "".join(text.split()) == _IMMUTABLE


def _text_problems(entry: JsonObject) -> list[RuleProblem]:
    rule, message = str(entry.get("rule", "")), str(entry.get("message") or "")
    problems = []
    if not rule.strip():
        problems.append(RuleProblem("rule", "Required", None, "rule is not specified"))
    if message and not message.strip():
        problems.append(RuleProblem("message", "Invalid", message, "message must be non-empty if specified"))
    elif "\n" in message.strip():
        problems.append(RuleProblem("message", "Invalid", message, "message must not contain line breaks"))
    elif "\n" in rule.strip() and not message:
        detail = "message must be specified if rule contains line breaks"
        problems.append(RuleProblem("message", "Required", None, detail))
    expression = entry.get("messageExpression")
    if expression and not str(expression).strip():
        detail = "messageExpression must be non-empty if specified"
        problems.append(RuleProblem("messageExpression", "Required", None, detail))
    reason = entry.get("reason")
    if reason is not None and reason not in _REASONS:
        supported = ", ".join(f'"{each}"' for each in sorted(_REASONS))
        problems.append(RuleProblem("reason", "NotSupported", reason, f"supported values: {supported}"))
    return problems


def _failure(error: CompilationFailed) -> str:
    text = str(error)
    return text if text.startswith("cel expression must") else f"compilation failed: {text}"


def _condition(text: str, selections: Selections, scope: Scope, *, is_optional: bool) -> Callable[[Any, Any], bool]:
    schema = scope.schema
    if _freezes(text) and not is_optional:
        return lambda new, old: is_equal(new, old, schema)
    run = _program(text, selections, scope, is_optional=is_optional, result="bool")

    def holds(new: Any, old: Any) -> bool:
        value = run(new, old)
        if not isinstance(value, bool):
            raise EvaluationFailed("no such overload: the rule has no truth value")
        return value

    return holds


def _explanation(expression: str, scope: Scope) -> Callable[[Any, Any], str]:
    run = _program(expression, find_selections(expression), scope, is_optional=False, result="string")

    def explain(new: Any, old: Any) -> str:
        value = run(new, old)
        message = value.strip() if isinstance(value, str) else ""
        if not message or "\n" in message or len(message.encode()) > _LONGEST_MESSAGE:
            raise EvaluationFailed("messageExpression should evaluate to one line of text")
        return message

    return explain


def _program(
    text: str, selections: Selections, scope: Scope, *, is_optional: bool, result: str
) -> Callable[[Any, Any], Any]:
    """Compile an expression to a function of the new and the old value."""
    if not decltype.is_visible(scope.schema):
        unknown = str(scope.schema.get("x-kubernetes-preserve-unknown-fields") is True).lower()
        raise CompilationFailed(
            f"rule declared on schema that does not support validation rules type: '{scope.schema.get('type', '')}' "
            f"x-kubernetes-preserve-unknown-fields: '{unknown}'"
        )
    own = decltype.cel_type(scope.schema)
    self = Variable("self", text, selections.get("self", ()), scope.schema, is_resource=scope.is_resource)
    before = None
    types = {"self": own, **self.types}
    rewritten = self.rewrite(text)
    if "oldSelf" in selections:
        before = Variable(
            "oldSelf",
            text,
            () if is_optional else selections["oldSelf"],
            scope.schema,
            is_resource=scope.is_resource,
        )
        rewritten = before.rewrite(rewritten)
        types |= {"previous": f"map<string,{own}>"} if is_optional else {"oldSelf": own, **before.types}
    program = _compile(rewritten, text, types, is_optional=is_optional, result=result)
    mixed = has_unordered(scope.schema)

    def run(new: Any, old: Any) -> Any:
        given = self.values(new)
        if before is not None:
            was = align(old, new, scope.schema) if mixed and old is not None else old
            given |= {"previous": before.optional(was)} if is_optional else before.values(was)
        try:
            return program.evaluate(given)
        except VariableMissing as error:
            owner = before if before is not None and error.name in before.types else self
            whole = old if owner is before else new
            raise EvaluationFailed(f"no such key: {owner.missing(error.name, whole)}") from error

    return run


def _compile(expression: str, original: str, types: Mapping[str, str], *, is_optional: bool, result: str) -> Program:
    """Compile a rewritten expression; errors show it as its author wrote it."""
    first = 1
    if is_optional:
        expression = f"cel.bind(oldSelf, previous.?value,\n{expression})"
        first = 2
    try:
        return compile_program(expression, types, result)
    except LibraryMissing:
        raise
    except CompilationFailed as error:
        shown = re.sub(r"<input>:(\d+):", lambda match: f"<input>:{int(match.group(1)) - first + 1}:", str(error))
        lines = zip(expression.split("\n")[first - 1 :], original.split("\n"), strict=False)
        for ours, theirs in lines:
            shown = shown.replace(f"\n | {ours}\n", f"\n | {theirs}\n")
        raise CompilationFailed(shown) from error


def compile_program(expression: str, variables: Mapping[str, str], result: str) -> Program:
    """Compile an expression with variables of these types to a value of a type.

    Raises CompilationFailed, or LibraryMissing on a platform without cel-expr-python.
    """
    try:
        from trainmaster.devcluster.apiserver.schema.cel import env  # noqa: PLC0415 - 14 MB, for rules only
    except ImportError as error:
        raise LibraryMissing(_missing()) from error
    return env.compile_program(expression, variables, result)


def _missing() -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        f"rules in CEL cannot be evaluated: cel-expr-python is not installed (this is {python} on {sys.platform} "
        f"{platform.machine()}). `pip install 'trainmaster[local]'` brings it where it has wheels: for CPython 3.11 to "
        "3.14 on Linux with glibc and on macOS, for x86_64 and arm64"
    )


_VARIABLES = {"object": "dyn", "oldObject": "dyn", "request": "dyn"}
_AUTHORIZER = "authorizer"


@functools.lru_cache(maxsize=1024)
def compile_condition(expression: str) -> Program:
    """Compile a condition; raises CompilationFailed."""
    return compile_program(expression, _VARIABLES, "bool")


def asks_authorizer(expression: str) -> bool:
    """Return whether a condition depends on what the user may do, which is not known here."""
    return any(token.text == _AUTHORIZER for token in tokens(expression))
