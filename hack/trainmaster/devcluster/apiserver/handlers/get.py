"""GET and LIST, the latter also in pages (`limit` and `continue`).

Guarantees:
- a list is one consistent state with the resource version from which a watch goes on;
- a client that has seen a newer state than the server (restarted without its files) gets 504, no older data;
- a list of many objects is written in pieces, so that other requests are handled in between;
- all pages of one list show the state of the first one: records never change, so a snapshot costs only references;
- a snapshot that was dropped (too many lists, too old, a restart) is 410 Expired with a token that goes on from the
  same place in the newest state, so a client that can live with a seam need not start again.

The server owns one `Pager`; only the event loop touches it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import orjson
from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.handlers.freshness import wait_until_fresh
from trainmaster.devcluster.apiserver.handlers.response import ResponseEncoder
from trainmaster.devcluster.apiserver.http.negotiation import JSON
from trainmaster.devcluster.apiserver.http.query import ListOptions
from trainmaster.devcluster.apiserver.http.responsewriters import json_response, start_stream
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.storage import Record
from trainmaster.runtime.jsontree import JsonObject

# kubectl pages by 500 and asks for the next page at once: a few lists in flight at a time are what happens in practice.
_MAX_SNAPSHOTS = 16
_NEWEST = -1
"""The revision in a token that asks for the newest state, whatever it is."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    records: Sequence[Record]
    revision: int
    continue_token: str = ""
    remaining: int = 0


class Pager:
    """Cuts lists into pages and remembers the snapshots that unfinished lists still need."""

    def __init__(self) -> None:
        self._snapshots: OrderedDict[Hashable, list[Record]] = OrderedDict()

    def first(self, query: Hashable, records: list[Record], *, revision: int, limit: int) -> Page:
        """Return the first page of a list; `query` stands for everything that decides on its members."""
        return self._cut(query, records, revision=revision, start=0, limit=limit)

    def next(self, query: Hashable, token: str, *, limit: int, newest: Callable[[], tuple[list[Record], int]]) -> Page:
        """Return the page behind a token."""
        revision, start = _decode(token)
        if revision == _NEWEST:
            records, revision = newest()
        else:
            snapshot = self._snapshots.get((query, revision))
            if snapshot is None:
                raise _ContinueExpired(start)
            records = snapshot
        position = next((index for index, record in enumerate(records) if _key(record) > start), len(records))
        return self._cut(query, records, revision=revision, start=position, limit=limit)

    def _cut(self, query: Hashable, records: list[Record], *, revision: int, start: int, limit: int) -> Page:
        end = start + limit if limit else len(records)
        page = records[start:end]
        if end >= len(records):
            self._snapshots.pop((query, revision), None)
            return Page(page, revision)
        self._snapshots[query, revision] = records
        self._snapshots.move_to_end((query, revision))
        while len(self._snapshots) > _MAX_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return Page(page, revision, _encode(revision, _key(page[-1])), remaining=len(records) - end)


def _key(record: Record) -> tuple[str, str]:
    return record.metadata.get("namespace", ""), record.metadata["name"]


def _encode(revision: int, key: tuple[str, str]) -> str:
    content = {"v": "meta.k8s.io/v1", "rv": revision, "start": "/".join(key)}
    return base64.urlsafe_b64encode(orjson.dumps(content)).decode("ascii").rstrip("=")


def _decode(token: str) -> tuple[int, tuple[str, str]]:
    try:
        content = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        revision, start = content["rv"], content["start"]
        namespace, slash, name = start.partition("/")
    except (binascii.Error, ValueError, TypeError, KeyError, AttributeError):
        slash = ""
    if not slash or not isinstance(revision, int) or content.get("v") != "meta.k8s.io/v1":
        raise errors.bad_request("continue key is not valid: pass on the token of the previous page unchanged")
    return revision, (namespace, name)


class _ContinueExpired(StatusError):
    """410 for a token whose snapshot is gone; the Status carries the token that goes on without it."""

    def __init__(self, start: tuple[str, str]) -> None:
        super().__init__(
            410,
            "Expired",
            "The snapshot behind this continue token is gone. Start the list again, or go on with the token in "
            "metadata.continue and accept that the pages show different states.",
        )
        self._start = start

    def status(self) -> JsonObject:
        """Return the Status object with `metadata.continue`."""
        return {**super().status(), "metadata": {"continue": _encode(_NEWEST, self._start)}}


# Objects that are encoded and joined in one go; their first encoding takes a few milliseconds.
_BATCH = 500


class GetHandler:
    """Handles the requests that read once."""

    def __init__(self, api: Api, *, freshness_wait: float) -> None:
        self._api = api
        self._pager = Pager()
        self._freshness_wait = freshness_wait

    async def get(
        self, encoder: ResponseEncoder, *, namespace: str | None, name: str, resource_version: str
    ) -> web.Response:
        """Handle a GET of one object."""
        await wait_until_fresh(self._api, resource_version, seconds=self._freshness_wait)
        return json_response(encoder.object(self._api.get(encoder.kind.resource, namespace, name)))

    async def list(
        self, request: web.Request, encoder: ResponseEncoder, *, namespace: str | None, options: ListOptions
    ) -> web.StreamResponse:
        """Handle a LIST."""
        page = await self._page(encoder.kind, namespace, options)
        metadata: JsonObject = {"resourceVersion": str(page.revision)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
            if not options.selects:  # with a selector the real server does not know the number
                metadata["remainingItemCount"] = page.remaining
        head, tail = encoder.list_frame(metadata)
        if len(page.records) <= _BATCH or encoder.media_type.serializer != JSON:
            return json_response(head + _joined(encoder, page.records) + tail)
        response = await start_stream(request, content_type="application/json")
        for start in range(0, len(page.records), _BATCH):
            await response.write((b"," if start else head) + _joined(encoder, page.records[start : start + _BATCH]))
            await asyncio.sleep(0)
        await response.write(tail)
        return response

    async def _page(self, kind: Kind, namespace: str | None, options: ListOptions) -> Page:
        def newest() -> tuple[list[Record], int]:
            return self._api.list(kind.resource, namespace, labels=options.labels, fields=options.fields)

        query = (kind.resource, namespace, options.labels_text, options.fields_text)
        if options.continue_token:
            return self._pager.next(query, options.continue_token, limit=options.limit, newest=newest)
        await wait_until_fresh(self._api, options.resource_version, seconds=self._freshness_wait)
        records, revision = newest()
        if options.resource_version_match == "Exact" and options.resource_version != str(revision):
            raise errors.expired(
                f"The resourceVersion for the provided list is too old: {options.resource_version} ({revision})"
            )
        return self._pager.first(query, records, revision=revision, limit=options.limit)


def _joined(encoder: ResponseEncoder, records: Sequence[Record]) -> bytes:
    return b",".join([encoder.list_item(record) for record in records])
