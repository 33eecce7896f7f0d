"""What is gathered for a support bundle, how it is read from a cluster, and its index.

Guarantees:
- Files have the same names each time, and come in the order of these, after the index.
- A bundle has at most `MOST_BYTES` before it is packed, and of a collection no more is read than was asked for. What
  does not fit is left out, and the index says so.
- What could not be had is in the index, with the reason, and so is what was cut.
- Nothing is written to the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import orjson

from trainmaster.controller.cli.probes import list_first
from trainmaster.controller.cli.support_bundle.redaction import Redactor
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__

INDEX: Final = "index.json"

MOST_BYTES: Final = 64 * 2**20
LOG_BYTES: Final = 2 * 2**20
"""Of the end of one log."""

LOG_LINES: Final = 20_000
MOST_OBJECTS: Final = 500
"""Of one kind, of all namespaces together."""

_ABOUT: Final = (
    "What `trainmaster support-bundle` gathered. Credentials, values of environment variables, and data of Secrets and "
    "ConfigMaps are left out, as far as a program can tell. Look through it before you pass it on."
)


@dataclass(slots=True)
class Bundle:
    """What has been gathered."""

    created: datetime
    most_bytes: int = MOST_BYTES
    most_objects: int = MOST_OBJECTS
    log_bytes: int = LOG_BYTES
    server: str = ""
    scope: JsonObject = field(default_factory=dict)
    missing: list[dict[str, str]] = field(default_factory=list)
    """What could not be had: `what` and `reason`."""

    _files: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """A tree of JSON or a text by path, each with a remark."""

    _bytes: int = 0

    def lacks(self, what: str, reason: str) -> None:
        """Take note of something that could not be had."""
        self.missing.append({"what": what, "reason": reason})

    def add(self, path: str, content: Any, *, remark: str = "") -> None:
        """Add a file: a text, or a tree of JSON.

        The index tells the remark.
        """
        # Names of objects are in it, and a server may call them as it likes.
        path = "/".join(part for part in path.split("/") if part not in ("", ".", ".."))
        size = len(content) if isinstance(content, str) else len(orjson.dumps(content))
        if self._bytes + size > self.most_bytes:
            self.lacks(path, f"it has {size} bytes, and the bundle {self.most_bytes} at most; name jobs or namespaces")
            return
        self._bytes += size
        self._files[path] = content, remark

    def add_objects(self, path: str, objects: Iterable[JsonObject], *, remark: str = "") -> None:
        """Add a file with objects, by namespace and name, unless there are none."""
        items = sorted(objects, key=_identity)
        if items:
            self.add(path, {"apiVersion": "v1", "kind": "List", "items": items}, remark=remark)

    def paths(self) -> list[str]:
        """Return the names of the files, without the index."""
        return sorted(self._files)

    def written(self, redactor: Redactor) -> Iterator[tuple[str, bytes]]:
        """Return names and contents of all files, redacted; the index first."""
        for content, _ in self._files.values():
            if not isinstance(content, str):
                redactor.learn(content)
        files = {path: redactor.written(self._files[path][0]) for path in self.paths()}
        yield INDEX, redactor.written(self._index(files))
        yield from files.items()

    def _index(self, files: dict[str, bytes]) -> JsonObject:
        listed = []
        for path, content in files.items():
            remark = self._files[path][1]
            listed.append({"path": path, "bytes": len(content), **({"remark": remark} if remark else {})})
        return {
            "about": _ABOUT,
            "version": __version__,
            "created": self.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "server": self.server,
            "scope": self.scope,
            "limits": {
                "bytes": self.most_bytes,
                "bytesOfALog": self.log_bytes,
                "linesOfALog": LOG_LINES,
                "objectsOfAKind": self.most_objects,
            },
            "missing": self.missing,
            "files": listed,
        }


def end_of_log(content: bytes, *, is_cut: bool) -> str:
    """Return the text of the end of a log, from its first whole line on: half a token would not be recognized."""
    text = content.decode(errors="replace")
    return text.partition("\n")[2] if is_cut else text


def _identity(obj: JsonObject) -> tuple[str, str, str]:
    metadata = obj.get("metadata") or {}
    return str(obj.get("kind")), str(metadata.get("namespace", "")), str(metadata.get("name", ""))


class Reading:
    """Reads objects of one cluster."""

    def __init__(self, client: KubeClient, bundle: Bundle) -> None:
        self.client = client
        self.bundle = bundle

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        most: int | None = None,
        is_optional: bool = False,
    ) -> tuple[list[JsonObject], str]:
        """Read some objects, and say whether there are more; none if they cannot be read.

        `is_optional`: a cluster is well without the kind.
        """
        what = f"{resource.name}{_in(namespace) if resource.namespaced else ''}"
        most = self.bundle.most_objects if most is None else most
        try:
            listed = await list_first(self.client, resource, namespace, most=most, labels=labels, fields=fields)
        except NotFound:
            if not is_optional:
                self.bundle.lacks(what, f"this cluster does not serve them: {resource.remedy}")
            return [], ""
        except KubeError as error:
            self.failed(what, "list", error)
            return [], ""
        more = f"; {listed.left} more are there" if listed.left else ""
        return listed.items, "" if listed.is_all else f"the first {most}{more}"

    async def add_listed(
        self,
        path: str,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        is_wanted: Callable[[JsonObject], bool] = lambda _: True,
    ) -> Sequence[JsonObject]:
        """Read some objects and add a file with them; returns these."""
        found, remark = await self.list(resource, namespace, labels=labels)
        wanted = [each for each in found if is_wanted(each)]
        self.bundle.add_objects(path, wanted, remark=remark)
        return wanted

    def failed(self, what: str, verb: str, error: KubeError) -> None:
        """Note why something could not be read."""
        self.bundle.lacks(what, f"you have no right to {verb} it" if isinstance(error, Forbidden) else str(error))


def joined(remarks: Sequence[str]) -> str:
    """Return remarks as one, each once."""
    return "; ".join(dict.fromkeys(filter(None, remarks)))


def _in(namespace: str | None) -> str:
    return f" in namespace {namespace}" if namespace else ""
