"""The simulated API server: the embedded cluster's API, with the network and the watch caches of a real cluster.

- Requests and answers take time, drawn from the seed; each frame of a watch does. Within one stream the order holds.
- What is asked for by a resource version may be answered from a watch cache, which may lag: a list at "0", a watch, a
  streaming list from a known version. A quorum read, a write, and a streaming list without a version never are: while
  the cache lags the last waits for it and then fails as the real one does.
- Every request is in the trace: when, who, what, and what came of it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Self

import orjson
from support.sim.loop import PROCESS, Process, VirtualLoop
from support.sim.wire import WRITES, Answer, Pipe, Request, whole

from trainmaster.controller.kube.rest.errors import NotConnected
from trainmaster.controller.kube.rest.transport import Guard
from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.handlers.discovery import Discovery
from trainmaster.devcluster.apiserver.handlers.get import Pager
from trainmaster.devcluster.apiserver.handlers.response import ResponseEncoder
from trainmaster.devcluster.apiserver.http.negotiation import negotiate_media_type
from trainmaster.devcluster.apiserver.http.query import ListOptions, read_list_options, read_resource_version
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions, PatchType, Watch, WriteOptions
from trainmaster.devcluster.apiserver.registry.generic.watch import SelectionPredicate
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.storage import Event, Record
from trainmaster.runtime.jsontree import JsonObject

BOOKMARK_INTERVAL = 60.0
_MOMENT = 1e-6
"""Seconds; less than this is the rounding of floating-point numbers."""

FRESHNESS_WAIT = 3.0
"""Seconds for which a watch cache may be waited for; the API server's own number."""

Perform = Callable[[], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the trace."""

    time: float
    process: str
    request: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.time:12.6f} {self.process:<12} {self.request:<60} {self.outcome}"


@dataclass(slots=True)
class Network:
    """How the server and the network behave; faults change it."""

    shortest: float = 0.0005
    longest: float = 0.02
    bookmarks: bool = True
    streaming_lists: bool = True
    page_size: int | None = None
    pods_take: float = 0.0
    """Seconds that a list of pods takes besides."""

    pages_expire: bool = False
    """Whether the continuation of a list is always 410."""

    def latency(self, chooser: random.Random) -> float:
        """Draw how long one way takes."""
        return chooser.uniform(self.shortest, self.longest)


class Interference:
    """What comes between clients and the server; by default nothing."""

    async def request(self, process: Process, request: Request, perform: Perform) -> Answer:
        """Carry a request to the server and its answer back; may fail, or never return."""
        return await perform()

    def stream(self, process: Process, request: Request, frames: AsyncIterator[bytes], pipe: Pipe) -> "Frames":
        """Return the frames of a watch as they arrive."""
        return frames

    def horizon(self, process: Process) -> int | None:
        """Return the revision that the watch cache has reached for this client; None: the newest."""
        return None


Frames = AsyncIterator[bytes]


class SimServer:
    """Answers requests from an `Api` that lives in the same loop."""

    def __init__(
        self,
        api: Api,
        loop: VirtualLoop,
        chooser: random.Random,
        *,
        on_accepted: Callable[[Process, Request], None] = lambda _process, _request: None,
    ) -> None:
        self.api = api
        self._on_accepted = on_accepted
        self.network = Network()
        self.interference = Interference()
        self.trace: list[Entry] = []
        self.history: list[Event] = []
        """Every change so far."""
        self.log_of: Callable[[JsonObject], str] = lambda _pod: ""
        """What is read of the log of a pod."""
        self._loop = loop
        self._chooser = chooser
        self._pager = Pager()
        self._discovery = Discovery(api.registry)
        self._tasks: set[asyncio.Task[None]] = set()
        # Outside of every process: a pause of a client does not stop the server.
        self._context = copy_context()
        self._context.run(PROCESS.set, None)
        self._changed = asyncio.Event()
        self._awaited: dict[GroupResource, list[asyncio.Future[None]]] = {}
        """Who waits for a change of a collection."""
        api.store.subscribe(None, self._note)

    def _note(self, event: Event) -> None:
        self.history.append(event)
        self._changed.set()
        for arrival in self._awaited.pop(event.key.resource, ()):
            _come(arrival)

    async def change(self) -> None:
        """Wait for the next change of anything."""
        self._changed.clear()
        await self._changed.wait()

    def record(self, process: Process, request: Request, outcome: str) -> None:
        """Add a line to the trace."""
        self.trace.append(Entry(self._loop.time(), process.name, str(request), outcome))

    def spawn(self, work: Any) -> None:
        """Run something as a part of the server."""
        task = self._loop.create_task(work, context=self._context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def answer(self, process: Process, request: Request) -> Answer:
        """Take a request in and answer it; the client may give up, the server goes on."""
        answered: asyncio.Future[Answer] = self._loop.create_future()
        self.spawn(self._serve(process, request, answered))
        return await answered

    async def _serve(self, process: Process, request: Request, answered: asyncio.Future[Answer]) -> None:
        outcome = "?"

        async def perform() -> Answer:
            nonlocal outcome
            await asyncio.sleep(self.network.latency(self._chooser))
            answer = await self._perform(process, request)
            if (request.verb, request.target.resource) == ("list", "pods"):
                await asyncio.sleep(self.network.pods_take)
            outcome = str(answer.status)
            if answer.status < 300 and request.verb in WRITES:
                self._on_accepted(process, request)
            if request.verb != "watch":
                self.record(process, request, outcome)
            await asyncio.sleep(self.network.latency(self._chooser))
            return answer

        try:
            answer = await self.interference.request(process, request, perform)
        except Exception as error:  # whatever it is, it is the client's
            self.record(process, request, f"{type(error).__name__} (server: {outcome})")
            if not answered.done():
                answered.set_exception(error)
            return
        if request.verb == "watch" or str(answer.status) != outcome:
            self.record(process, request, f"{answer.status} (server: {outcome})")
        if answered.done():
            answer.close()
        else:
            answered.set_result(answer)

    async def _perform(self, process: Process, request: Request) -> Answer:
        target = request.target
        try:
            if not target.resource:
                document = self._discovery.resource_list(target.group, target.version)
                if document is None:
                    raise errors.route_not_found()
                return whole(200, orjson.dumps(document))
            kind = self.api.registry.find(target.group, target.version, target.resource)
            if kind is None:
                raise errors.route_not_found()
            encoder = ResponseEncoder(
                kind=kind,
                media_type=negotiate_media_type(request.headers.get("Accept", "")),
                include="Metadata",
                clock=self.api.clock,
            )
            if request.verb == "watch":
                return await self._watch(process, request, encoder)
            if request.verb == "list":
                return await self._list(process, request, encoder)
            return await self._object(request, encoder)
        except StatusError as error:
            headers = {"Retry-After": str(error.retry_after)} if error.retry_after is not None else {}
            return whole(error.code, orjson.dumps(error.status()), headers)

    # Objects

    async def _object(self, request: Request, encoder: ResponseEncoder) -> Answer:
        api, target, resource = self.api, request.target, encoder.kind.resource
        namespace, name, body = target.namespace, target.name or "", request.body or b"{}"
        options = _write_options(request)
        match request.verb:
            case "get" if target.subresource == "log":
                return whole(200, self.log_of(api.get(resource, namespace, name)).encode())
            case "get":
                return whole(200, encoder.object(api.get(resource, namespace, name)))
            case "create":
                created = await api.create(resource, orjson.loads(body), namespace=namespace, options=options)
                return whole(201, encoder.object(created))
            case "update":
                written, new = await api.put(
                    resource,
                    orjson.loads(body),
                    namespace=namespace,
                    name=name,
                    subresource=target.subresource,
                    options=options,
                )
                return whole(201 if new else 200, encoder.object(written))
            case "patch":
                written, new = await api.patch(
                    resource,
                    namespace,
                    name,
                    orjson.loads(body),
                    patch_type=PatchType(request.headers["Content-Type"]),
                    subresource=target.subresource,
                    options=options,
                )
                return whole(201 if new else 200, encoder.object(written))
            case "delete":
                deleted, _ = await api.delete(resource, namespace, name, options=_delete_options(body))
                return whole(200, encoder.object(deleted))
        raise errors.not_implemented(request.verb)

    # Collections

    async def _list(self, process: Process, request: Request, encoder: ResponseEncoder) -> Answer:
        options = read_list_options(request.params, watching=False)
        kind, namespace = encoder.kind, request.target.namespace
        limit = min(options.limit, self.network.page_size or options.limit)

        def newest() -> tuple[list[Record], int]:
            return self.api.list(kind.resource, namespace, labels=options.labels, fields=options.fields)

        query = (kind.resource, namespace, options.labels_text, options.fields_text)
        if options.continue_token:
            if self.network.pages_expire:
                raise errors.expired("the provided continue parameter is too old")
            page = self._pager.next(query, options.continue_token, limit=limit, newest=newest)
        elif options.resource_version:
            revision = await self._reach(process, options.resource_version)
            records = self._state(kind, namespace, options, revision)
            page = self._pager.first(query, records, revision=revision, limit=limit)
        else:
            records, revision = newest()
            page = self._pager.first(query, records, revision=revision, limit=limit)
        metadata = {"resourceVersion": str(page.revision)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        head, tail = encoder.list_frame(metadata)
        return whole(200, head + b",".join(encoder.list_item(record) for record in page.records) + tail)

    def _horizon(self, process: Process) -> int:
        horizon = self.interference.horizon(process)
        return self.api.revision if horizon is None else horizon

    async def _reach(self, process: Process, version: str) -> int:
        """Wait until the watch cache is as new as asked for ("" for the newest there is); returns how far it is."""
        wanted = self.api.revision if version == "" else read_resource_version(version) or 0
        patience = self._loop.time() + FRESHNESS_WAIT
        while (reached := self._horizon(process)) < wanted:
            if self._loop.time() >= patience:
                raise errors.resource_version_too_large(wanted, reached)
            await asyncio.sleep(0.1)
        return reached

    def _state(self, kind: Kind, namespace: str | None, options: ListOptions, revision: int) -> list[Record]:
        """Return the collection as it was at a revision, sorted as lists are."""
        now = {(r.metadata.get("namespace", ""), r.metadata["name"]): r for r in self.api.store.list(kind.stored_as)}
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            if event.key.resource == kind.stored_as:
                place = (event.key.namespace, event.key.name)
                if event.previous is None:
                    now.pop(place, None)
                else:
                    now[place] = event.previous
        selection = SelectionPredicate(kind, options.labels, options.fields)
        return [
            record
            for place, record in sorted(now.items())
            if (namespace is None or place[0] == namespace) and selection.matches(record.object)
        ]

    def known_to(self, request: Request) -> set[str]:
        """Return the keys of the objects that whoever sends a watch has seen: none, if it begins with all there is."""
        options = read_list_options(request.params, watching=True)
        kind = self.api.registry.find(request.target.group, request.target.version, request.target.resource)
        known = read_resource_version(options.resource_version)
        if kind is None or options.send_initial_events or not known:
            return set()
        records = self._state(kind, request.target.namespace, options, known)
        return {f"{record.metadata.get('namespace', '')}/{record.metadata['name']}" for record in records}

    # Watches

    async def _watch(self, process: Process, request: Request, encoder: ResponseEncoder) -> Answer:
        options = read_list_options(request.params, watching=True)
        if options.send_initial_events and not self.network.streaming_lists:
            # What an API server says that does not know the feature.
            problem = errors.FieldError("sendInitialEvents", "Forbidden", None, "is forbidden for watch")
            raise errors.invalid("meta.k8s.io", "ListOptions", "", [problem])
        version = options.resource_version
        known = read_resource_version(version)
        if options.send_initial_events or not known:
            start = await self._reach(process, version)
            initial = self._state(encoder.kind, request.target.namespace, options, start)
        else:
            start, initial = known, []
        try:
            watch = self.api.watch(
                encoder.kind.resource,
                namespace=request.target.namespace,
                since=start,
                labels=options.labels,
                fields=options.fields,
            )
        except StatusError as error:
            if error.code != 410:
                raise
            return whole(200, _line("ERROR", orjson.dumps(error.status())))
        pipe = Pipe()
        frames = self._frames(process, encoder, options, watch, initial, start=start)
        self.spawn(_pump(self.interference.stream(process, request, frames, pipe), pipe, watch))
        return Answer(200, {"Content-Type": "application/json"}, pipe)

    async def _frames(
        self,
        process: Process,
        encoder: ResponseEncoder,
        options: ListOptions,
        watch: Watch,
        initial: list[Record],
        *,
        start: int,
    ) -> Frames:
        """Yield the frames of a watch in their order, each after the time that it takes."""
        end = self._loop.time() + (options.timeout_seconds or 1800)
        for record in initial:
            await asyncio.sleep(self.network.latency(self._chooser) / 10)
            yield _line("ADDED", encoder.watch_event(record, first=False))
        if options.send_initial_events and options.allow_bookmarks:
            yield _bookmark(encoder, start, initial_events_end=True)
        sent = start
        while True:
            wait = min(BOOKMARK_INTERVAL, end - self._loop.time())
            if wait < _MOMENT:
                return
            deadline = self._loop.time() + wait
            while (event := watch.take()) is None and self._loop.time() < deadline:
                await self._arrival(encoder.kind.stored_as, deadline)
            if event is None:
                if options.allow_bookmarks and self.network.bookmarks:
                    sent = max(sent, min(self._horizon(process), watch.revision))
                    yield _bookmark(encoder, sent)
                continue
            if event.record is None:
                return
            while self._horizon(process) < event.revision:
                await asyncio.sleep(0.1)
            await asyncio.sleep(self.network.latency(self._chooser))
            sent = event.revision
            yield _line(event.type, encoder.watch_event(event.record, first=False))

    async def _arrival(self, resource: GroupResource, deadline: float) -> None:
        """Wait until a collection changes, or for the deadline: most of what a simulation does is this."""
        arrival: asyncio.Future[None] = self._loop.create_future()
        self._awaited.setdefault(resource, []).append(arrival)
        timer = self._loop.call_at(deadline, _come, arrival)
        try:
            await arrival
        finally:
            timer.cancel()


class SimTransport:
    """The network between one program and the server; implements the `Transport` of `KubeClient`."""

    def __init__(self, server: SimServer, process: Process) -> None:
        self._server = server
        self._process = process

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """There is nothing to close: bodies end with those who read them."""

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
        streaming: bool,
        guard: Guard | None = None,
    ) -> Answer:
        """Send one request, once, and return when the headers of its answer have arrived."""
        if self._process.dead:
            raise NotConnected(f"{method} {path}: the program was killed")
        if guard is not None:
            guard()
        request = Request.read(method, path, dict(params), dict(headers), body)
        assert streaming == (request.verb == "watch" or request.target.subresource == "log")
        return await self._server.answer(self._process, request)


def _come(arrival: asyncio.Future[None]) -> None:
    if not arrival.done():
        arrival.set_result(None)


async def _pump(frames: Frames, pipe: Pipe, watch: Watch) -> None:
    """Move frames into the pipe until they end or nobody reads any more."""
    try:
        async for frame in frames:
            pipe.put(frame)
            if pipe.abandoned:
                break
        pipe.end()
    except Exception as error:  # whatever it is, it is the reader's
        pipe.end(error)
    finally:
        watch.close()


def _write_options(request: Request) -> WriteOptions:
    program = request.headers.get("User-Agent", "").partition("/")[0]
    validation: Any = request.params.get("fieldValidation", "Warn")
    return WriteOptions(
        field_manager=request.params.get("fieldManager") or program or "unknown",
        force=request.params.get("force") == "true",
        field_validation=validation,
    )


def _delete_options(body: bytes) -> DeleteOptions:
    given = orjson.loads(body)
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(
        propagation=given.get("propagationPolicy"),
        grace_seconds=given.get("gracePeriodSeconds"),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
    )


def _bookmark(encoder: ResponseEncoder, revision: int, *, initial_events_end: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_events_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return _line("BOOKMARK", encoder.bookmark(metadata))


def _line(event_type: str, obj: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event_type.encode(), obj)
