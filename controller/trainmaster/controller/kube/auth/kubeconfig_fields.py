"""The shape of a kubeconfig file: which fields its entries have, and of which type.

kubectl refuses a file with a field of another type, wherever in it that is; so do we, in words that name file, entry
and field. What is in a field is never told: it may be a secret. Fields that nobody here reads are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trainmaster.controller.kube.rest.config import ConfigurationError

_Shape = type | list[Any] | dict[str, Any]
"""A type; a list of one shape; a mapping with the shapes of some fields, or under `""` that of all."""

_TEXTS: Final[_Shape] = [str]

_ENTRIES: Final[Mapping[str, tuple[str, _Shape]]] = {
    "clusters": (
        "cluster",
        {
            "server": str,
            "tls-server-name": str,
            "insecure-skip-tls-verify": bool,
            "certificate-authority": str,
            "certificate-authority-data": str,
            "proxy-url": str,
        },
    ),
    "users": (
        "user",
        {
            "client-certificate": str,
            "client-certificate-data": str,
            "client-key": str,
            "client-key-data": str,
            "token": str,
            "tokenFile": str,
            "as": str,
            "as-uid": str,
            "as-groups": _TEXTS,
            "as-user-extra": {"": _TEXTS},
            "username": str,
            "password": str,
            "auth-provider": {"name": str, "config": {"": str}},
            "exec": {
                "apiVersion": str,
                "command": str,
                "args": _TEXTS,
                "env": [{"name": str, "value": str}],
                "installHint": str,
                "provideClusterInfo": bool,
                "interactiveMode": str,
            },
        },
    ),
    "contexts": ("context", {"cluster": str, "user": str, "namespace": str}),
}
"""By list: under which name an entry has what it is about, and the shape of that."""

_WORDS: Final = {
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
    int: "a number",
    float: "a number",
}


WRITE_AGAIN: Final = "have the tool that made the file write it again"


def check_fields(document: Mapping[str, Any], *, path: str) -> None:
    """Refuse a document whose fields are of other types than those of a kubeconfig.

    Args:
        document: The file.
        path: Its name, for the error.

    Raises:
        ConfigurationError: It says which file, entry and field.
    """
    for fault in _faults(document):
        raise ConfigurationError(f"in {path}, {fault}; correct it there, or {WRITE_AGAIN}")


def _faults(document: Mapping[str, Any]) -> Iterator[str]:
    yield from _mismatches(document.get("current-context"), str, "current-context")
    for part, (kind, shape) in _ENTRIES.items():
        entries = document.get(part)
        yield from _mismatches(entries, [dict], part)
        for index, entry in enumerate(entries or ()):
            place = f"{part}[{index}]"
            name = entry.get("name")
            if name in (None, ""):
                yield f"{place} has no name"
            yield from _mismatches(name, str, f"{place}.name")
            yield from _mismatches(entry.get(kind), shape, f"{place}.{kind}", of=f" ({kind} {name!r})")


def _mismatches(value: object, shape: _Shape, place: str, *, of: str = "") -> Iterator[str]:
    """Compare a value with a shape; no value has any shape, except in a list."""
    wanted = shape if isinstance(shape, type) else type(shape)
    if value is None:
        return
    if not isinstance(value, wanted):
        yield f"{place}{of} must be {_WORDS[wanted]}, but is {_WORDS.get(type(value), 'something else')}"
    elif isinstance(value, list) and isinstance(shape, list):
        for index, each in enumerate(value):
            if each is None:
                yield f"{place}[{index}]{of} is empty"
            yield from _mismatches(each, shape[0], f"{place}[{index}]", of=of)
    elif isinstance(value, dict) and isinstance(shape, dict):
        for name, each in value.items():
            below = shape.get("", shape.get(name))
            if below is not None:
                yield from _mismatches(each, below, f"{place}.{name}", of=of)
