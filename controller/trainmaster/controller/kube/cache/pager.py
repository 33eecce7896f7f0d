"""Reads a collection by list requests, a page and a step at a time.

Guarantees:
- R-9: lists come in pages of 500, except at a certain version: those the server answers from its cache, in one go.
- R-10: if a continuation expires, the whole is read once in one answer; if that is not to be had, it is the caller's
  matter.
- A server that continues where it has continued before, or continues an answer that was asked for as a whole and lets
  that expire too, gets an error: no answer makes this loop spin.
- An item that the decoder refuses is read in parts (`rest.partial`): it does not keep the others from being listed.
- R-14: an answer that is not a list, for instance a Table, is an error and never an empty collection.
- P-24, P-35: bodies are decoded in steps of a quarter of a mebibyte, other tasks run between them, and no more than one
  step is ever held as a tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from trainmaster.controller.kube.cache.backoff import BYTES_AT_MOST
from trainmaster.controller.kube.cache.delta import Entry
from trainmaster.controller.kube.cache.listwatch import Collection, ListClient, Snapshot, ToEntry, version_of
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.errors import Gone, MalformedResponse
from trainmaster.controller.kube.rest.partial import read_items
from trainmaster.runtime.jsontext import JsonError
from trainmaster.runtime.jsontree import JsonObject

PAGE_SIZE: Final = 500

_ITEMS: Final = b'"items":['
_GUESSES_AT_MOST: Final = 8


class ListPager:
    """Takes snapshots of a collection by list requests."""

    def __init__(self, client: ListClient, collection: Collection, to_entry: ToEntry, *, clock: Clock) -> None:
        self._client = client
        self._collection = collection
        self._to_entry = to_entry
        self._clock = clock

    async def list(self, version: str) -> Snapshot:
        """Read everything, not older than `version`; "" means the newest state.

        Raises:
            KubeError: The collection cannot be read.
        """
        entries: list[Entry] = []
        token: str | None = None
        used = set[str]()
        limit = None if version else PAGE_SIZE
        while True:
            try:
                body = await self._page(version, limit=limit, token=token)
            except Gone:
                if token is None or limit is None:
                    raise
                # The continuation expired while we read; the whole in one answer cannot.
                entries, token, limit = [], None, None
                used.clear()
                continue
            page = ListBody(body, what=self._collection.resource.name)
            del body
            for items in page:
                entries += [self._to_entry(item) for item in map(self._typed, items) if self._collection.accepts(item)]
                await self._clock.sleep(0)
            token = page.continue_token
            if token is None:
                return entries, page.resource_version
            if token in used:
                raise MalformedResponse(
                    f"listing {self._collection.resource.name}: the server continues twice with the same token"
                )
            used.add(token)

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
        try:
            rest = orjson.loads(body if position == start else head + body[position:])
        except orjson.JSONDecodeError as error:
            if not head:
                raise self._no_json(body, error) from error
            try:
                end = position
                for items, end in self._one_by_one(body, position):  # noqa: B007 - the last end counts
                    yield items
                rest = orjson.loads(head + body[end:])
            except (JsonError, orjson.JSONDecodeError):
                raise self._no_json(body, error) from error
        yield self._envelope(rest)

    def _one_by_one(self, body: bytes, start: int) -> Iterator[tuple[list[Any], int]]:
        """Decode the items from `start` on, of which at least one cannot be read; with where the rest begins."""
        items: list[Any] = []
        position = begun = start
        for item, position in read_items(body, start):
            items.append(item)
            if position - begun > self._step:
                yield items, position
                items, begun = [], position
        yield items, position

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

    def _no_json(self, text: bytes, error: orjson.JSONDecodeError) -> MalformedResponse:
        excerpt = text[:200].decode("utf-8", "replace")
        return MalformedResponse(f"listing {self._what}: the answer is not JSON ({error}): {excerpt}")

    def _envelope(self, answer: Any) -> list[Any]:
        kind = answer.get("kind") if isinstance(answer, dict) else None
        if not isinstance(kind, str) or not kind.endswith("List") or "items" not in answer:
            raise MalformedResponse(f"listing {self._what}: the answer is no list but {str(kind)[:100]!r}")
        items, metadata = answer["items"], answer.get("metadata")
        if not isinstance(metadata, dict) or not (items is None or isinstance(items, list)):
            raise MalformedResponse(f"listing {self._what}: the answer has no metadata, or its items are no list")
        self._metadata = metadata
        return items or []
