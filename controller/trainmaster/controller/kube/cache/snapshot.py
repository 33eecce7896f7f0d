"""Takes snapshots of a collection: by list requests, or by a streaming list, which is a watch up to a bookmark.

Guarantees of list requests:
- R-9: lists come in pages of 500, except at a certain version: those the server answers from its cache, in one go.
- R-10: if a continuation expires, the whole is read once in one answer; if that is not to be had, it is the caller's
  matter.
- A server that continues where it has continued before, or continues an answer that was asked for as a whole and lets
  that expire too, gets an error: no answer makes this loop spin.
- R-14: an answer that is not a list, for instance a Table, is an error and never an empty collection.
- P-24, P-35: items are decoded in runs of a quarter of a mebibyte, between which other tasks run, and no more than that
  is ever held as trees. From a run on that the decoder refuses, items are read one by one (`rest.partial`), which takes
  2.6 times the CPU.

Guarantees of streaming lists:
- R-3: initial events are gathered aside, and returned as one snapshot when the bookmark that ends them has come.
- R-5: what came of a stream that broke off is thrown away.
- R-6: while the end of the initial events is awaited, every ten seconds without an event are logged.
- R-7: the versions of initial events mean no progress; that of the snapshot is that of its bookmark.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import orjson

from trainmaster.controller.kube.cache.backoff import BYTES_AT_MOST, YieldBudget
from trainmaster.controller.kube.cache.delta import Entry
from trainmaster.controller.kube.cache.listwatch import (
    Collection,
    ListWatcher,
    Snapshot,
    ToEntry,
    version_of,
    version_of_event,
)
from trainmaster.controller.kube.cache.store import object_key
from trainmaster.controller.kube.clock import Clock, Timer
from trainmaster.controller.kube.rest.errors import Gone, MalformedResponse, StreamBroken
from trainmaster.controller.kube.rest.partial import read_items
from trainmaster.controller.kube.rest.watch import WatchEvent
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

PAGE_SIZE: Final = 500

SILENCE: Final = 10.0
"""Seconds without an event after which a snapshot that is not complete is worth a warning."""

_ITEMS: Final = b'"items":['
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


async def list_collection(
    client: ListWatcher, collection: Collection, to_entry: ToEntry, version: str, *, clock: Clock
) -> Snapshot:
    """Read everything by list requests, not older than `version` ("": the newest state); raises `KubeError`."""
    entries: list[Entry] = []
    token: str | None = None
    used = set[str]()
    limit = None if version else PAGE_SIZE
    while True:
        try:
            body = await client.list_bytes(
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
        except Gone:
            if token is None or limit is None:
                raise
            # The continuation expired while we read; the whole in one answer cannot.
            entries, token, limit = [], None, None
            used.clear()
            continue
        page = ListBody(body, collection)
        del body
        for items in page:
            entries += [to_entry(item) for item in items if collection.accepts(item)]
            await clock.sleep(0)
        token = page.continue_token
        if token is None:
            return entries, page.resource_version
        if token in used:
            raise MalformedResponse(
                f"listing {collection.resource.name}: the server continues twice with the same token"
            )
        used.add(token)


class ListBody:
    """The body of a list: iterating decodes its items, some at a time; the rest is known when that is done."""

    def __init__(self, body: bytes, collection: Collection, *, step: int = BYTES_AT_MOST) -> None:
        self._body = body
        self._resource = collection.resource
        self._step = step
        self._metadata: JsonObject = {}

    @property
    def resource_version(self) -> str:
        """The resource version of the list."""
        return version_of(self._metadata, what=f"a list of {self._resource.name}")

    @property
    def continue_token(self) -> str | None:
        """The token for the next page, if there is one."""
        return self._metadata.get("continue") or None

    def __iter__(self) -> Iterator[list[Any]]:
        body, self._body = self._body, b""
        start = behind = body.find(_ITEMS) + len(_ITEMS)
        items: list[Any] = []
        try:
            if start >= len(_ITEMS):
                for run, end in self._runs(body, start):
                    if items:
                        yield items
                    items, behind = list(map(self._typed, run)), end
                rest = orjson.loads(body[:start] + body[behind:])
            else:
                rest = orjson.loads(body)  # with blanks, as a proxy may write it: in one step
                if isinstance(rest, dict) and isinstance(rest.get("items"), list):
                    items, rest["items"] = list(map(self._typed, rest["items"])), []
        except (JsonError, orjson.JSONDecodeError) as error:
            text = body[:200].decode("utf-8", "replace")
            raise MalformedResponse(f"{self._listing}: the answer is not JSON ({error}): {text}") from error
        self._read_envelope(rest)
        yield items

    def _runs(self, body: bytes, position: int) -> Iterator[tuple[list[Any], int]]:
        """Decode the items that begin at `position` in runs, each with the place after it.

        What looks like the end of an item may stand within one: then the run is no JSON.
        """
        seam, last = b"}," + body[position : position + 9], body.rfind(b"}]") + 1
        with suppress(JsonError):
            while position < last:
                end = body.find(seam, position + self._step) + 1 or last
                if end - position > 8 * self._step:  # more than a step and the largest object: items begin differently
                    break
                yield load_json(b"[%b]" % body[position:end]), end
                position = end + 1
            if position > last > 0:
                return
        for item, end in read_items(body, position):
            yield [item], end

    @property
    def _listing(self) -> str:
        return f"listing {self._resource.name}"

    def _typed(self, item: Any) -> Any:
        """Give an item of a list the type that only the list states."""
        if isinstance(item, dict):
            item.setdefault("apiVersion", self._resource.api_version)
            item.setdefault("kind", self._resource.kind)
        return item

    def _read_envelope(self, answer: Any) -> None:
        kind = answer.get("kind") if isinstance(answer, dict) else None
        if not isinstance(kind, str) or not kind.endswith("List") or "items" not in answer:
            raise MalformedResponse(f"{self._listing}: the answer is no list but {str(kind)[:100]!r}")
        if not isinstance(answer.get("metadata"), dict) or answer["items"] not in (None, []):
            raise MalformedResponse(f"{self._listing}: the answer has no metadata, or its items are no list")
        self._metadata = answer["metadata"]


async def collect_initial_events(
    events: AsyncIterator[WatchEvent],
    collection: Collection,
    to_entry: ToEntry,
    *,
    clock: Clock,
    warn: Callable[[float, int], None],
) -> Snapshot:
    """Gather the initial events of a watch up to the bookmark that ends them.

    Args:
        events: The events of the watch; what comes after that bookmark stays in it.
        warn: Called with the seconds in which nothing has come, and how many events came before.

    Raises:
        StreamBroken: The watch ended before.
        KubeError: The watch failed.
    """
    entries: dict[str, Entry] = {}
    budget = YieldBudget()
    timer: Timer
    count = seen = 0
    silent = 0.0

    def tick() -> None:
        # One timer that looks at a counter: a timer for each event would cost more than the event.
        nonlocal seen, silent, timer
        silent = silent + SILENCE if count == seen else 0.0
        seen = count
        if silent:
            warn(silent, count)
        timer = clock.call_at(clock.monotonic() + SILENCE, tick)

    timer = clock.call_at(clock.monotonic() + SILENCE, tick)
    try:
        async for event in events:
            count += 1
            if event.type == "BOOKMARK":
                if _ends_initial_events(event.object):
                    return list(entries.values()), version_of_event(event, collection.resource)
                continue
            if not collection.accepts(event.object):
                continue
            if event.type == "DELETED":
                entries.pop(object_key(event.object), None)
            else:
                entry = to_entry(event.object)
                entries[entry[0]] = entry
            if budget.spent(event.size):
                await clock.sleep(0)
    finally:
        timer.cancel()
    raise StreamBroken(f"the streaming list of {collection.resource.name} ended before its snapshot was complete")


def _ends_initial_events(bookmark: JsonObject) -> bool:
    metadata = bookmark.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(annotations, dict) and annotations.get(_INITIAL_EVENTS_END) == "true"
