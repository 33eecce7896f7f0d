"""Kubeconfig files, read and merged as kubectl does it; `loader` states the guarantees.

Of each entry, and of the current context, the first file counts that has it. Only what the context in use names is
looked at closely. Paths in an entry are relative to the file that it is from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.kube.auth.kubeconfig_fields import WRITE_AGAIN, check_fields
from trainmaster.controller.kube.rest.config import ConfigurationError
from trainmaster.runtime.yamltext import load_yaml

_REMEDY: Final = "have the tool that made the cluster write it again, or name another with --kubeconfig or KUBECONFIG"
_CHOOSE: Final = "choose one with `kubectl config use-context`"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a cluster, a user or a context of a kubeconfig says, and in which file."""

    name: str
    fields: dict[str, Any]
    path: Path

    @property
    def directory(self) -> Path:
        """Where the relative paths of the entry begin."""
        return self.path.absolute().parent


@dataclass(frozen=True, slots=True)
class KubeconfigContext:
    """A context of a kubeconfig with what it names; without a user it is anonymous."""

    context: Entry
    cluster: Entry
    user: Entry | None


def read_kubeconfig(paths: str, *, context: str | None) -> KubeconfigContext:
    """Read and merge files.

    Args:
        paths: The files, separated as in `$KUBECONFIG`; those that do not exist are passed over.
        context: The context that will be used; None: their current one.

    Raises:
        ConfigurationError: They hold nothing, or nothing to use in that context.
        YamlError: One of them is not YAML.
        OSError: One of them cannot be read.
    """
    merged = _Merged(paths)
    if merged.empty:
        raise ConfigurationError(f"there is nothing in it; {_REMEDY}")
    return merged.resolve(context)


class _Merged:
    """The entries of several files, by list and name."""

    def __init__(self, paths: str) -> None:
        self.empty = True
        self._current = ""
        self._entries: dict[str, dict[str, tuple[Mapping[str, Any], Path]]] = {
            "clusters": {},
            "contexts": {},
            "users": {},
        }
        for each in filter(None, paths.split(os.pathsep)):
            path = Path(each).expanduser()
            if path.exists():
                self._add(path)

    def _add(self, path: Path) -> None:
        document = load_yaml(path.read_bytes())
        if document is None:  # kubectl leaves an empty file behind when the last context is deleted from it
            return
        if not isinstance(document, dict):
            raise ConfigurationError(f"{path} is no kubeconfig, which is a mapping with clusters, users and contexts")
        check_fields(document, path=str(path))
        self.empty = False
        self._current = self._current or document.get("current-context") or ""
        for part, entries in self._entries.items():
            for entry in document.get(part) or ():
                entries.setdefault(entry["name"], (entry, path))

    def resolve(self, context: str | None) -> KubeconfigContext:
        """Return a context and what it names, or tell which part is missing."""
        contexts, clusters = self._entries["contexts"], self._entries["clusters"]
        if not clusters:
            raise ConfigurationError(f"it names no cluster; {_REMEDY}")
        if not contexts:
            raise ConfigurationError(
                f"it has no context; add one with `kubectl config set-context`, for one of: {', '.join(clusters)}"
            )
        name = context or self._current
        if not name:
            raise ConfigurationError(f"no current-context is set; {_CHOOSE}: {_listed(contexts)}")
        if name not in contexts:
            problem = f"; {_listed(contexts)}" if context else f", its current-context; {_CHOOSE}: {_listed(contexts)}"
            raise ConfigurationError(f"it has no context {name!r}{problem}")
        chosen = self._entry("context", name)
        if not chosen.fields.get("cluster"):
            raise ConfigurationError(f"its context {name!r} names no cluster; {_listed(clusters)}")
        cluster = self._named_by(chosen, "cluster")
        if not cluster.fields.get("server"):
            raise ConfigurationError(f"in {cluster.path}, the cluster {cluster.name!r} has no server; {_REMEDY}")
        return KubeconfigContext(chosen, cluster, self._named_by(chosen, "user") if chosen.fields.get("user") else None)

    def _named_by(self, context: Entry, kind: str) -> Entry:
        name, known = context.fields[kind], self._entries[f"{kind}s"]
        if name not in known:
            raise ConfigurationError(
                f"its context {context.name!r} is of {kind} {name!r}, which is missing; {_listed(known)}"
            )
        return self._entry(kind, name)

    def _entry(self, kind: str, name: str) -> Entry:
        entry, path = self._entries[f"{kind}s"][name]
        fields = entry.get(kind)
        if fields is None:
            raise ConfigurationError(
                f"in {path}, the entry of {kind} {name!r} has no field {kind!r}; add it, or {WRITE_AGAIN}"
            )
        return Entry(name, fields, path)


def _listed(names: Mapping[str, Any]) -> str:
    return f"it has: {', '.join(names) or 'none'}"
