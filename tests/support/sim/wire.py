"""What goes over the simulated wire: requests, answers, and bodies that arrive in pieces."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import orjson

from trainmaster.controller.kube.rest.errors import StreamBroken
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo, Verb, parse_request_info, verb_of

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_DISCOVERY = re.compile(r"/apis/([^/]+)/([^/]+)")
"""What a group has in a version: a request for no resource."""

BACKGROUND = frozenset({"leases", "events"})
"""Resources whose writes are no steps of a reconcile: they come with time, and their loss changes nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it left a client."""

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None
    target: RequestInfo
    verb: Verb

    @classmethod
    def read(
        cls, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], body: bytes | None
    ) -> "Request":
        """Understand a request; the controller sends none that names nothing."""
        target = parse_request_info(path)
        if method == "GET" and (found := _DISCOVERY.fullmatch(path)) is not None:
            target = RequestInfo(group=found[1], version=found[2], resource="")
            return cls(method, path, params, headers, body, target, "get")
        watching = params.get("watch") == "true"
        verb = None if target is None else verb_of(method, named=target.name is not None, watching=watching)
        if target is None or verb is None:
            raise AssertionError(f"the controller sent {method} {path}, which no API server knows")
        return cls(method, path, params, headers, body, target, verb)

    @property
    def resource(self) -> str:
        """The resource, and its subresource if there is one, as `trainjobs/status`."""
        target = self.target
        return f"{target.resource}/{target.subresource}" if target.subresource else target.resource

    @property
    def is_step(self) -> bool:
        """Whether this is a write that brings something about, and not merely background noise."""
        return self.verb in WRITES and self.target.resource not in BACKGROUND

    def __str__(self) -> str:
        names = [name for name in (self.target.namespace, self.target.name) if name]
        return " ".join([self.verb, self.resource or self.path, "/".join(names)]).rstrip()


@dataclass(slots=True)
class Pipe:
    """A body on its way: pieces, then an end that may be a broken connection."""

    pieces: deque[bytes] = field(default_factory=deque)
    ended: bool = False
    failure: Exception | None = None
    abandoned: bool = False
    """Whether the reader has given up."""
    silent: bool = False
    """Whether whatever is put in from now on gets lost, the end too: a half-open connection."""
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, piece: bytes) -> None:
        """Deliver a piece."""
        if not self.silent and not self.ended:
            self.pieces.append(piece)
            self._arrived.set()

    def end(self, failure: Exception | None = None) -> None:
        """Deliver the end."""
        if not self.silent and not self.ended:
            self.ended, self.failure = True, failure
            self._arrived.set()

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the pieces as they arrive."""
        while True:
            while self.pieces:
                yield self.pieces.popleft()
            if self.ended:
                if self.failure is not None:
                    raise self.failure
                return
            self._arrived.clear()
            await self._arrived.wait()


@dataclass(slots=True)
class Answer:
    """An answer; implements the `Response` of the client's transports."""

    status: int
    headers: Mapping[str, str]
    pipe: Pipe

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives."""
        return self.pipe.read()

    def close(self) -> None:
        """Give the answer up."""
        self.pipe.abandoned = True
        self.pipe.end()


def whole(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer whose body arrives in one piece."""
    return Answer(status, {"Content-Type": "application/json", **(headers or {})}, Pipe(deque([body]), ended=True))


def refusal(status: int, reason: str, *, retry_after: int | None = None) -> Answer:
    """Return the answer of a server that refuses."""
    body = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status, "reason": reason,
        "message": f"simulated {reason}",
    }  # fmt: skip
    return whole(status, orjson.dumps(body), {"Retry-After": str(retry_after)} if retry_after is not None else {})


def broken(what: str) -> StreamBroken:
    """Return what a client sees of a connection that broke."""
    return StreamBroken(f"{what}: the connection broke before the end of the answer: simulated reset")
