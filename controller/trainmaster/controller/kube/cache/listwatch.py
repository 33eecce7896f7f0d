"""From list requests to the objects of a collection, a step at a time.

Guarantees:
- R-9: lists come in pages of 500, except at a certain version: those the server answers from its cache, in one go.
- R-10: if a continuation expires, the whole is asked for at the version of the first page; if that is not to be had,
  it is the caller's matter.
- R-14: an answer that is not a list, for instance a Table, is an error and never an empty collection.
- R-29: objects of another kind are skipped.
- S-18: where metadata is enough, only metadata is asked for, and only metadata is kept.
- P-24, P-35: bodies are decoded in steps of a quarter of a mebibyte, other tasks run between them, and no more than one
  step is ever held as a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import orjson
import structlog

from trainmaster.controller.kube.cache.backoff import BYTES_AT_MOST
from trainmaster.controller.kube.cache.store import Entry
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.errors import Gone, MalformedResponse
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

PAGE_SIZE: Final = 500

PARTIAL_KIND: Final = "PartialObjectMetadata"

Prepare: TypeAlias = Callable[[JsonObject], Entry]
"""Makes of an object what is kept of it."""

Snapshot: TypeAlias = tuple[list[Entry], str]
"""Everything in a collection, and the resource version of that state."""

_ITEMS: Final = b'"items":['
_GUESSES_AT_MOST: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What is read: a resource type, as far as it is of interest."""

    resource: Resource
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None
    metadata_only: bool = False

    def admit(self, obj: Any) -> bool:
        """Whether an object is one of those we asked for, which are brought into shape; others stop nothing (R-29).

        Raises:
            MalformedResponse: It is a Table, so the server has not understood what we want at all (R-14).
        """
        if not isinstance(obj, dict):
            raise MalformedResponse(f"reading {self.resource.name}: an item is not an object")
        kind, metadata = obj.get("kind"), obj.get("metadata")
        if kind == "Table":
            raise MalformedResponse(
                f"reading {self.resource.name}: the server answers with Tables; is there a proxy that changes headers?"
            )
        ours = kind == self.resource.kind or (self.metadata_only and kind == PARTIAL_KIND)
        if not (ours and isinstance(metadata, dict) and metadata.get("name")):
            log.warning("object of another kind skipped", resource=self.resource.name, kind=str(kind)[:100])
            return False
        if self.metadata_only:
            # Also of a server that does not know this form and sends all of it.
            obj.clear()
            obj |= {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": metadata}
        return True


class ListClient(Protocol):
    """What listing needs of a client."""

    async def list_bytes(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        resource_version: str | None = None,
        metadata_only: bool = False,
    ) -> bytes:
        """Read a collection, or one page of it, and return the answer undecoded."""


class Lister:
    """Takes snapshots of a collection by list requests."""

    def __init__(self, client: ListClient, collection: Collection, prepare: Prepare, *, clock: Clock) -> None:
        self._client = client
        self._collection = collection
        self._prepare = prepare
        self._clock = clock

    async def list(self, version: str) -> Snapshot:
        """Read everything, not older than `version`; "" means the newest state.

        Raises:
            KubeError: The collection cannot be read.
        """
        entries: list[Entry] = []
        token: str | None = None
        limit = None if version else PAGE_SIZE
        while True:
            try:
                body = await self._page(version, limit=limit, token=token)
            except Gone:
                if token is None:
                    raise
                # The continuation expired while we read; the whole in one answer cannot.
                entries, token, limit = [], None, None
                continue
            page = ListBody(body, what=self._collection.resource.name)
            del body
            for items in page:
                entries += [self._prepare(item) for item in map(self._typed, items) if self._collection.admit(item)]
                await self._clock.sleep(0)
            token = page.continue_token
            if token is None:
                return entries, page.resource_version

    async def _page(self, version: str, *, limit: int | None, token: str | None) -> bytes:
        collection = self._collection
        return await self._client.list_bytes(
            collection.resource,
            collection.namespace,
            label_selector=collection.label_selector,
            field_selector=collection.field_selector,
            limit=limit,
            continue_token=token,
            # A continuation carries the version of its first page and may not name another.
            resource_version=None if token else version or None,
            metadata_only=collection.metadata_only,
        )

    def _typed(self, item: Any) -> Any:
        """Give an item of a list the type that only the list states."""
        if isinstance(item, dict):
            item.setdefault("apiVersion", self._collection.resource.api_version)
            item.setdefault("kind", self._collection.resource.kind)
        return item


class ListBody:
    """The body of a list: iterating decodes its items in steps; the rest is known when that is done.

    Where a step may end is guessed from how the first item begins, and the guess is verified by decoding: a piece that
    starts with an item and is valid JSON ends with an item. A body in which no guess comes true is decoded in one go.
    """

    def __init__(self, body: bytes, *, what: str, step: int = BYTES_AT_MOST) -> None:
        self._body = body
        self._what = what
        self._step = step
        self._metadata: JsonObject = {}

    @property
    def resource_version(self) -> str:
        """The resource version of the list."""
        return version_of(self._metadata, what=f"a list of {self._what}")

    @property
    def continue_token(self) -> str | None:
        """The token for the next page, if there is one."""
        return self._metadata.get("continue") or None

    def __iter__(self) -> Iterator[list[Any]]:
        body, self._body = self._body, b""
        start = body.find(_ITEMS) + len(_ITEMS)
        head = body[:start]
        position = start
        if head:
            while len(body) - position > self._step and (found := self._piece(body, position)) is not None:
                items, position = found
                yield items
        rest = self._decode(body if position == start else head + body[position:])
        yield self._envelope(rest)

    def _piece(self, body: bytes, start: int) -> tuple[list[Any], int] | None:
        """Decode some items from `start` on; returns them and where the next one begins."""
        seam = b"}," + body[start : start + 12]
        end = start + self._step
        for _ in range(_GUESSES_AT_MOST):
            end = body.rfind(seam, start, end)
            if end < 0:
                # One item may be longer than a step.
                end = body.find(seam, start + self._step)
                if end < 0:
                    return None
            try:
                return orjson.loads(b"[" + body[start : end + 1] + b"]"), end + 2
            except orjson.JSONDecodeError:
                continue
        return None

    def _decode(self, text: bytes) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            excerpt = text[:200].decode("utf-8", "replace")
            raise MalformedResponse(f"listing {self._what}: the answer is not JSON ({error}): {excerpt}") from error

    def _envelope(self, answer: Any) -> list[Any]:
        kind = answer.get("kind") if isinstance(answer, dict) else None
        if not isinstance(kind, str) or not kind.endswith("List") or "items" not in answer:
            raise MalformedResponse(f"listing {self._what}: the answer is no list but {str(kind)[:100]!r}")
        items, metadata = answer["items"], answer.get("metadata")
        if not isinstance(metadata, dict) or not (items is None or isinstance(items, list)):
            raise MalformedResponse(f"listing {self._what}: the answer has no metadata, or its items are no list")
        self._metadata = metadata
        return items or []


def version_of(metadata: Any, *, what: str) -> str:
    """Return the resource version in some metadata; without one there is no way to go on."""
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise MalformedResponse(f"{what} has no metadata.resourceVersion")
    return version
