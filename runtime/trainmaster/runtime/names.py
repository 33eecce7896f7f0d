"""Rules of names: each returns what is wrong with a text, in the words of Kubernetes; nothing means it is fine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

NameRule: TypeAlias = Callable[[str], list[str]]
"""Returns what is wrong with a name."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"

_IS_LABEL = re.compile(_LABEL)
_IS_SUBDOMAIN = re.compile(_SUBDOMAIN)
_IS_LABEL_1035 = re.compile(_LABEL_1035)
_IS_QUALIFIED = re.compile(_QUALIFIED)
_IS_HTTP_PATH = re.compile(_HTTP_PATH)

_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
    f" (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
    f" (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
    f" (e.g. 'my-name',  or 'abc-123', regex used for validation is '{_LABEL_1035}')"
)
_QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
    f" (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
    " (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def _matches(text: str, pattern: re.Pattern[str], message: str, limit: int) -> list[str]:
    problems = [] if len(text) <= limit else [_too_long(limit)]
    return problems if pattern.fullmatch(text) else [*problems, message]


def dns_subdomain(name: str) -> list[str]:
    """Check a DNS-1123 subdomain, the rule of most names."""
    return _matches(name, _IS_SUBDOMAIN, _SUBDOMAIN_TEXT, 253)


def dns_label(name: str) -> list[str]:
    """Check a DNS-1123 label, the rule of namespaces and host names."""
    message = "must not contain dots" if "." in name and _IS_SUBDOMAIN.fullmatch(name) else _LABEL_TEXT
    return _matches(name, _IS_LABEL, message, 63)


def dns_label_1035(name: str) -> list[str]:
    """Check a DNS-1035 label, the rule of services and custom resource names."""
    return _matches(name, _IS_LABEL_1035, _LABEL_1035_TEXT, 63)


def path_segment(name: str) -> list[str]:
    """Check that a name can stand in a URL path, the rule of roles and role bindings."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def label_value(value: str) -> list[str]:
    """Check the value of a label."""
    if value == "":
        return []
    return [
        problem.replace("63 characters", "63 bytes")
        for problem in _matches(value, _IS_QUALIFIED, _LABEL_VALUE_TEXT, 63)
    ]


def qualified_name(key: str) -> list[str]:
    """Check the key of a label or annotation, or the name of a finalizer: a name with an optional DNS prefix."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            "a qualified name "
            + _QUALIFIED_TEXT.removeprefix("name part ")
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    problems: list[str] = []
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {problem}" for problem in dns_subdomain(prefix)]
    if not name:
        return [*problems, "name part must be non-empty", _QUALIFIED_TEXT]
    return problems + [
        problem if problem.startswith("name part ") else f"name part {problem}"
        for problem in _matches(name, _IS_QUALIFIED, _QUALIFIED_TEXT, 63)
    ]


def domain_prefixed_path(text: str) -> list[tuple[str, str]]:
    """Check a name such as `acme.io/foo`; each problem comes with the part of the text that has it."""
    host, slash, path = text.partition("/")
    if not (slash and host and path):
        return [(text, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    problems = [(host, problem) for problem in dns_subdomain(host)]
    if not _IS_HTTP_PATH.fullmatch(path):
        problems.append((path, f"Invalid path (regex used for validation is '{_HTTP_PATH}')"))
    return problems
