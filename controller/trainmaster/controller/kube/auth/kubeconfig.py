"""Kubeconfig files: read, checked and merged as kubectl does it.

kubernetes_asyncio merges the files. It stumbles over files that are empty, takes the last current context for the one
that counts, and tells of parts that are missing in terms of its own: here the part is named.

Guarantees:
- A field of a wrong type is refused wherever it is, in words that name file, entry and field, and so is a part that
  names another which is not there. What is in a field is never shown: it may be a secret.
- Fields that nobody here reads are passed over.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from trainmaster.controller.kube.auth.kubeconfig_library import ConfigNode, KubeConfigMerger
from trainmaster.controller.kube.auth.tls import Pem
from trainmaster.controller.kube.rest.config import ConfigurationError
from trainmaster.runtime.yamltext import load_yaml

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

_WRITE_AGAIN: Final = "have the tool that made the file write it again"
_REMEDY: Final = "have the tool that made the cluster write it again, or name another with --kubeconfig or KUBECONFIG"
_CHOOSE: Final = "choose one with `kubectl config use-context`"


def read_kubeconfig(paths: str, *, context: str | None) -> ConfigNode:
    """Read and merge files.

    Args:
        paths: The files, separated as in `$KUBECONFIG`.
        context: The context that will be used; None: their current one.

    Raises:
        ConfigurationError: They hold nothing, or nothing to use in that context.
    """
    merged: ConfigNode | None = _Merger(paths).config
    if merged is None:
        raise ConfigurationError(f"there is nothing in it; {_REMEDY}")
    _check(merged.value, context=context)
    return merged


def directory_of(entry: ConfigNode) -> Path:
    """Return where the file lies that an entry stands in; its relative paths begin there."""
    return Path(entry.path or "").absolute().parent


def read_pem(entry: ConfigNode, field: str) -> Pem | None:
    """Return a certificate or a key: what the field FIELD-data holds, or else the file that FIELD names.

    Raises:
        ConfigurationError: It cannot be read.
    """
    if data := entry.safe_get(f"{field}-data"):
        try:
            return Pem(f"{field}-data of {entry.path}", base64.b64decode(data))
        except ValueError as error:
            raise ConfigurationError(f"in {entry.path}, {field}-data is not base64; {_WRITE_AGAIN}") from error
    file = entry.safe_get(field)
    return Pem.read(directory_of(entry) / file) if file else None


class _Merger(KubeConfigMerger):
    """Merges as kubectl does, which leaves empty files behind; the first current context counts."""

    def load_config(self, path: str) -> None:
        document = load_yaml(Path(path).read_bytes())
        if isinstance(document, dict):
            for fault in _faults(document):
                raise ConfigurationError(f"in {path}, {fault}; correct it there, or {_WRITE_AGAIN}")
            current = self.config.value.get("current-context") if self.config else None
            super().load_config(path)
            if current:
                cast("ConfigNode", self.config).value["current-context"] = current
        elif document is not None:
            raise ConfigurationError(f"{path} is no kubeconfig, which is a mapping with clusters, users and contexts")


def _check(config: Mapping[str, Any], *, context: str | None) -> None:
    """Refuse parts that name others which are not there."""
    clusters, contexts, users = (
        {str(entry["name"]): entry for entry in config[part]} for part in ("clusters", "contexts", "users")
    )
    if not clusters:
        raise ConfigurationError(f"it names no cluster; {_REMEDY}")
    if not contexts:
        raise ConfigurationError(
            f"it has no context; add one with `kubectl config set-context`, for one of: {', '.join(clusters)}"
        )
    current = config.get("current-context")
    name = context or current
    if not name:
        raise ConfigurationError(f"no current-context is set; {_CHOOSE}: {_listed(contexts)}")
    if name not in contexts:
        problem = "" if context else f", its current-context; {_CHOOSE}"
        raise ConfigurationError(f"it has no context {name!r}{problem}{':' if problem else ';'} {_listed(contexts)}")
    chosen = _content(contexts[name], "context")
    if not chosen.safe_get("cluster"):
        raise ConfigurationError(f"its context {name!r} names no cluster; {_listed(clusters)}")
    for part, known in (("cluster", clusters), ("user", users)):
        wanted = chosen.safe_get(part)
        if wanted and wanted not in known:
            raise ConfigurationError(
                f"its context {name!r} is of {part} {wanted!r}, which is missing; {_listed(known)}"
            )
        if wanted:
            _content(known[wanted], part)
    if not clusters[chosen["cluster"]]["cluster"].safe_get("server"):
        raise ConfigurationError(f"its cluster {chosen['cluster']!r} names no server; {_REMEDY}")


def _content(entry: Any, kind: str) -> Any:
    """Return what an entry is about."""
    if entry.safe_get(kind) is None:
        raise ConfigurationError(
            f"in {entry.path}, the entry of {kind} {entry['name']!r} has no field {kind!r}; add it, or {_WRITE_AGAIN}"
        )
    return entry[kind]


def _listed(names: Mapping[str, Any]) -> str:
    return f"it has: {', '.join(names) or 'none'}"


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
