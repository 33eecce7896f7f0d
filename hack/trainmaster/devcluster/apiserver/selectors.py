"""Label selectors and field selectors, as requests and objects spell them.

- A requirement that excludes (`!=`, `notin`, `!key`) also holds for objects without the label.
- Errors are `ValueError`s whose text can go to the client as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from trainmaster.runtime.jsontree import JsonObject

Operator: TypeAlias = Literal["in", "notin", "exists", "!", "gt", "lt"]

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_TOKEN = re.compile(r"\s*(?P<token>==|!=|=|!|<|>|\(|\)|,|[^\s=!<>(),]+)")
_WORD = re.compile(r"[^\s=!<>(),]+")
_FIELD_TERM = re.compile(r"(?:\\.|[^,\\]|\\\Z)+", re.DOTALL)
_FIELD_REQUIREMENT = re.compile(r"(?P<path>[^=!]+)(?P<operator>==|!=|=)(?P<value>.*)", re.DOTALL)
_FIELD_VALUE = re.compile(r"(?:[^\\,=]|\\[\\,=])*", re.DOTALL)
_OBJECT_OPERATORS: Mapping[str, Operator] = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label. `=`, `==` and `!=` are `in` and `notin` with a single value."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels of an object meet the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        if value is None or not _INTEGER.fullmatch(value):
            return False
        (limit,) = self.values
        return int(value) > int(limit) if self.operator == "gt" else int(value) < int(limit)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A conjunction of requirements; without any it selects everything."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Tell whether an object with these labels is selected."""
        if self.nothing:
            return False
        known = labels or {}
        return all(requirement.matches(known) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A conjunction of `(path, operator, value)` with `=` or `!=`; which paths exist is up to the resource."""

    requirements: tuple[tuple[str, Literal["=", "!="], str], ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Tell whether an object with these fields is selected; a field that is missing counts as empty."""
        return all((fields.get(path, "") == value) == (op == "=") for path, op, value in self.requirements)


def parse_label_selector(text: str) -> LabelSelector:
    """Parse the `labelSelector` of a request, for instance `app=a,tier in (x, y),!canary`."""
    tokens = _Tokens(text)
    requirements: list[Requirement] = []
    while tokens.more():
        requirements.append(_requirement(tokens))
        if tokens.more():
            tokens.expect(",")
            if not tokens.more():
                raise tokens.unexpected("", "identifier after ','")
    return LabelSelector(tuple(requirements))


def label_selector_from_object(selector: JsonObject | None) -> LabelSelector:
    """Read a LabelSelector object (`matchLabels`, `matchExpressions`); None selects nothing, `{}` everything."""
    if selector is None:
        return LabelSelector(nothing=True)
    requirements = [_checked(key, "in", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        name = expression.get("operator")
        if name not in _OBJECT_OPERATORS:
            raise ValueError(f'"{name}" is not a valid label selector operator: use In, NotIn, Exists or DoesNotExist')
        operator = _OBJECT_OPERATORS[name]
        values = tuple(expression.get("values") or ())
        if bool(values) != (operator in {"in", "notin"}):
            raise ValueError(f'values of the label selector operator "{name}": {_VALUES_RULE[operator]}')
        requirements.append(_checked(expression.get("key"), operator, values))
    return LabelSelector(tuple(requirements))


def format_label_selector(selector: JsonObject | None) -> str:
    """Spell a LabelSelector object as requests do; empty if it selects everything, or is none."""
    selector = selector or {}
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, values = each.get("key", ""), ",".join(sorted(each.get("values") or ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        terms.append((key, texts.get(each.get("operator"), key)))
    return ",".join(text for _, text in sorted(terms))


def parse_field_selector(text: str) -> FieldSelector:
    """Parse the `fieldSelector` of a request, for instance `metadata.name=a,status.phase!=Failed`."""
    requirements: list[tuple[str, Literal["=", "!="], str]] = []
    for term in _FIELD_TERM.findall(text):
        if not term:
            continue
        found = _FIELD_REQUIREMENT.fullmatch(term)
        if found is None:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{term}'")
        if not _FIELD_VALUE.fullmatch(found["value"]):
            raise ValueError(f"invalid field selector: escape ',', '=' and '\\' by '\\' in the value of '{term}'")
        value = re.sub(r"\\(.)", r"\1", found["value"])
        requirements.append((found["path"], "!=" if found["operator"] == "!=" else "=", value))
    return FieldSelector(tuple(requirements))


_VALUES_RULE: Mapping[Operator, str] = {
    "in": "for 'in', 'notin' operators, values set can't be empty",
    "notin": "for 'in', 'notin' operators, values set can't be empty",
    "exists": "values set must be empty for exists and does not exist",
    "!": "values set must be empty for exists and does not exist",
}


class _Tokens:
    """The tokens of a label selector, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [match["token"] for match in _TOKEN.finditer(text)]
        self._position = 0

    def more(self) -> bool:
        return self._position < len(self._tokens)

    def peek(self) -> str:
        return self._tokens[self._position] if self.more() else ""

    def take(self) -> str:
        token = self.peek()
        self._position += 1
        return token

    def expect(self, *wanted: str) -> str:
        token = self.take()
        if token not in wanted:
            raise self.unexpected(token, " or ".join(f"'{each}'" for each in wanted))
        return token

    def unexpected(self, token: str, wanted: str) -> ValueError:
        return ValueError(f"unable to parse requirement: found '{token}', expected: {wanted}")


def _requirement(tokens: _Tokens) -> Requirement:
    if tokens.peek() == "!":
        tokens.take()
        return _checked(_word(tokens), "!", ())
    key = _word(tokens)
    match tokens.peek():
        case "" | ",":
            return _checked(key, "exists", ())
        case "=" | "==":
            tokens.take()
            return _checked(key, "in", (_optional_word(tokens),))
        case "!=":
            tokens.take()
            return _checked(key, "notin", (_optional_word(tokens),))
        case ">" | "<" as sign:
            tokens.take()
            limit = _word(tokens)
            if not _INTEGER.fullmatch(limit):
                raise ValueError(f"for 'Gt', 'Lt' operators, the value must be an integer, not '{limit}'")
            return _checked(key, "gt" if sign == ">" else "lt", (limit,))
        case "in" | "notin" as operator:
            tokens.take()
            return _checked(key, "in" if operator == "in" else "notin", tuple(_values(tokens)))
        case token:
            raise tokens.unexpected(token, "',', '=', '==', '!=', 'in', 'notin', '<' or '>'")


def _values(tokens: _Tokens) -> Iterator[str]:
    tokens.expect("(")
    while True:
        yield _optional_word(tokens)
        if tokens.expect(",", ")") == ")":
            return


def _word(tokens: _Tokens) -> str:
    token = tokens.take()
    if not _WORD.fullmatch(token):
        raise tokens.unexpected(token, "identifier")
    return token


def _optional_word(tokens: _Tokens) -> str:
    """Take a value; nothing at all is the empty value, as in `a=` and `a in (x,)`."""
    return tokens.take() if _WORD.fullmatch(tokens.peek()) else ""


def _checked(key: Any, operator: Operator, values: tuple[Any, ...]) -> Requirement:
    """Build a requirement on a valid label key and valid values."""
    prefix, slash, name = key.rpartition("/") if isinstance(key, str) else ("", "", "")
    if not _NAME.fullmatch(name) or (slash and not (len(prefix) <= 253 and _PREFIX.fullmatch(prefix))):
        raise ValueError(
            f'unable to parse requirement: <nil>: Invalid value: "{key}": a label key is a name of at most 63 letters, '
            "digits, '-', '_' or '.', with an optional DNS subdomain and '/' before it"
        )
    for value in values:
        if not isinstance(value, str) or (value and not _NAME.fullmatch(value)):
            raise ValueError(
                f'unable to parse requirement: values: Invalid value: "{value}": a label value is empty or at most 63 '
                "letters, digits, '-', '_' or '.', starting and ending with a letter or a digit"
            )
    return Requirement(key, operator, frozenset(values))
