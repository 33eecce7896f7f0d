"""GET and LIST.

Guarantees:
- a list is one consistent state with the resource version from which a watch goes on;
- a client that has seen a newer state than the server (restarted without its files) gets 504, no older data;
- a list of many objects is written in pieces, so that other requests are handled in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.handlers.pagination import Page, Pager
from trainmaster.devcluster.apiserver.handlers.response import ResponseEncoder
from trainmaster.devcluster.apiserver.http.query import ListOptions, read_resource_version
from trainmaster.devcluster.apiserver.http.responsewriters import json_response, start_stream
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.storage import Record
from trainmaster.runtime.jsontree import JsonObject

# Objects that are encoded and joined in one go; their first encoding takes a few milliseconds.
_BATCH = 500
_POLL_INTERVAL = 0.05


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
        await self._reach(resource_version)
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
        if len(page.records) <= _BATCH:
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
        await self._reach(options.resource_version)
        records, revision = newest()
        if options.resource_version_match == "Exact" and options.resource_version != str(revision):
            raise errors.expired(
                f"The resourceVersion for the provided list is too old: {options.resource_version} ({revision})"
            )
        return self._pager.first(query, records, revision=revision, limit=options.limit)

    async def _reach(self, resource_version: str) -> None:
        """Wait until the server is as new as the client demands; 504 if it does not get there."""
        wanted = read_resource_version(resource_version) or 0
        if wanted <= self._api.revision:
            return
        try:
            async with asyncio.timeout(self._freshness_wait):
                while wanted > self._api.revision:  # noqa: ASYNC110 - too rare to be worth a notification
                    await asyncio.sleep(_POLL_INTERVAL)
        except TimeoutError as error:
            raise errors.resource_version_too_large(wanted, self._api.revision) from error


def _joined(encoder: ResponseEncoder, records: Sequence[Record]) -> bytes:
    return b",".join([encoder.list_item(record) for record in records])
