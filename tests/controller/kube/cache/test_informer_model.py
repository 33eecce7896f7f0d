"""An informer against a model of an API server that lags, breaks, forgets and refuses, in any order."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support.informers import bookmark, event, failure, pod, pod_list
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer, InformerOptions
from trainmaster.controller.kube.rest.errors import BadRequest, Gone, NotConnected, StreamBroken
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.controller.kube.rest.watch import WatchStream
from trainmaster.runtime.jsontree import JsonObject

NAMES = st.sampled_from("abc")
Fault: TypeAlias = Literal["end", "reset", "cut", "gone", "busy", "failed", "nonsense", "table"]
FAULTS = st.sampled_from(["end", "reset", "cut", "gone", "busy", "failed", "nonsense", "table"])
FRAMES: dict[str, bytes] = {
    "cut": b'{"type":"ADDED","obj',
    "gone": orjson.dumps(failure(410, "Expired")) + b"\n",
    "busy": orjson.dumps(failure(429)) + b"\n",
    "failed": orjson.dumps(failure(500)) + b"\n",
    "nonsense": b"hello\n",
    "table": orjson.dumps(event("ADDED", {"kind": "Table", "metadata": {"resourceVersion": "1"}})) + b"\n",
}


class Server:
    """Keeps every state there ever was, and shows those up to `visible`."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.objects: dict[str, JsonObject] = {}
        self.log: list[tuple[int, str, JsonObject]] = []
        self.version = self.visible = self.compacted = 1
        self.states = {1: dict[str, JsonObject]()}
        self.fault: Fault | None = None
        self.down = False
        self.streaming = True
        self.paged = False
        self.woken = asyncio.Event()

    def write(self, kind: str, obj: JsonObject) -> None:
        self.version += 1
        obj = pod(obj["metadata"]["name"], self.version, uid=obj["metadata"]["uid"])
        if kind == "DELETED":
            del self.objects[obj["metadata"]["name"]]
        else:
            self.objects[obj["metadata"]["name"]] = obj
        self.log.append((self.version, kind, obj))
        self.states[self.version] = dict(self.objects)

    def wake(self) -> None:
        self.woken.set()
        self.woken = asyncio.Event()

    async def list_bytes(
        self,
        *_: Any,
        resource_version: str | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        **__: Any,
    ) -> bytes:
        if self.down:
            raise NotConnected("down")
        if continue_token:
            version, start = map(int, continue_token.split("/"))
        else:
            asked = int(resource_version or self.version)
            if 0 < asked < self.compacted:
                raise Gone(status=410, reason="Expired")
            version, start = max(asked, self.visible), 0
        objects = list(self.states[version].values())
        size = 2 if self.paged and limit else len(objects) + 1
        more = {"continue": f"{version}/{start + size}"} if start + size < len(objects) else {}
        return orjson.dumps(pod_list(version, *objects[start : start + size], **more))

    @asynccontextmanager
    async def watch(
        self, *_: Any, resource_version: str, send_initial_events: bool = False, **__: Any
    ) -> AsyncIterator[WatchStream]:
        if self.down:
            raise NotConnected("down")
        if send_initial_events and not self.streaming:
            raise BadRequest(status=400)
        asked = int(resource_version or 0)
        if not send_initial_events and asked < self.compacted:
            raise Gone(status=410, reason="Expired")
        yield WatchStream(self.frames(asked, initial=send_initial_events), clock=self.clock)

    async def frames(self, version: int, *, initial: bool) -> AsyncIterator[bytes]:
        if initial:
            # An answer that is not older than what was asked for, and for nothing in particular the newest.
            version = max(version, self.visible) if version else self.version
            for obj in self.states[version].values():
                yield orjson.dumps(event("ADDED", obj)) + b"\n"
                if self.fault:
                    break
            else:
                yield orjson.dumps(bookmark(version, end=True)) + b"\n"
        while True:
            if self.fault:
                fault, self.fault = self.fault, None
                if fault == "reset":
                    raise StreamBroken("reset")
                if fault != "end":
                    yield FRAMES[fault]
                return
            for number, kind, obj in self.log:
                if version < number <= self.visible:
                    yield orjson.dumps(event(kind, obj)) + b"\n"
            if self.visible > version:
                version = self.visible
                yield orjson.dumps(bookmark(version)) + b"\n"
            await self.woken.wait()


class Listener:
    """Checks that what it hears of each object is a part of its history, in order, and fits together."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.known: dict[str, tuple[str, int]] = {}
        self.newest: dict[str, int] = defaultdict(int)
        self.wrong: list[str] = []

    def hear(self, change: Delta) -> None:
        key, before = change.key, self.known.get(change.key)
        old, new = change.old, change.new
        if change.resync:
            self.check(new is not None and before == identity(new), f"{key}: a reminder of what was not told")
            return
        self.check((old is None) == (before is None), f"{key}: told as {'known' if old else 'new'}, and is not")
        if old is not None and before is not None:
            self.check(change.is_deletion or identity(old) == before, f"{key}: the old state is another than was told")
        if new is None:
            self.known.pop(key, None)
            return
        uid, version = identity(new)
        real = {number: obj for number, kind, obj in self.server.log if kind != "DELETED"}.get(version)
        self.check(real == new, f"{key}: version {version} never was")
        self.check(version > self.newest[key], f"{key}: version {version} after {self.newest[key]}")
        self.known[key], self.newest[key] = (uid, version), version

    def check(self, holds: bool, text: str) -> None:
        # The informer logs what handlers raise, so it has to be said later.
        if not holds:
            self.wrong.append(text)


def identity(obj: JsonObject) -> tuple[str, int]:
    return obj["metadata"]["uid"], int(obj["metadata"]["resourceVersion"])


class InformerMachine(RuleBasedStateMachine):
    """Whatever happens, the informer tells real states in order; when it is quiet, it shows the truth."""

    @initialize(streaming=st.booleans(), paged=st.booleans())
    def start(self, *, streaming: bool, paged: bool) -> None:
        self.runner = asyncio.Runner()
        self.clock = VirtualClock()
        self.uids = 0

        async def begin() -> None:
            self.server = Server(self.clock)
            self.server.streaming, self.server.paged = streaming, paged
            self.informer = Informer(
                self.server, PODS, InformerOptions(resync_period=300), clock=self.clock, random=lambda: 0.5
            )
            self.listeners: list[Listener] = []
            self.task = asyncio.create_task(self.informer.run())

        self.runner.run(begin())
        self.listen()

    @rule()
    def listen(self) -> None:
        listener = Listener(self.server)
        self.listeners.append(listener)
        self.runner.run(self._added(listener))

    async def _added(self, listener: Listener) -> None:
        self.informer.add_event_handler(listener.hear, resync=True)

    @rule(name=NAMES)
    def write(self, name: str) -> None:
        current = self.server.objects.get(name)
        self.uids += current is None
        uid = current["metadata"]["uid"] if current else f"uid-{self.uids}"
        self.server.write("MODIFIED" if current else "ADDED", pod(name, 0, uid=uid))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.server.objects:
            self.server.write("DELETED", self.server.objects[name])

    @rule(share=st.integers(0, 3))
    def show(self, share: int) -> None:
        """The server catches up, in part or in whole."""
        self.server.visible = self.server.version - (self.server.version - self.server.visible) * share // 4
        self.server.wake()
        self.runner.run(settle())

    @rule()
    def forget(self) -> None:
        """Compaction: watches and lists at what was shown so far are refused from now on."""
        self.server.compacted = self.server.visible = self.server.version

    @rule(fault=FAULTS)
    def fail(self, fault: Fault) -> None:
        self.server.fault = fault
        self.server.wake()
        self.runner.run(settle())

    @rule(down=st.booleans(), streaming=st.booleans())
    def change_server(self, *, down: bool, streaming: bool) -> None:
        self.server.down, self.server.streaming = down, streaming

    @rule(seconds=st.sampled_from([1, 10, 100]))
    def wait(self, seconds: int) -> None:
        self.runner.run(self.clock.advance(seconds))

    @invariant()
    def nothing_false_was_told(self) -> None:
        for listener in getattr(self, "listeners", ()):
            assert not listener.wrong

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return

        async def finish() -> None:
            self.server.fault, self.server.down = None, False
            self.server.visible = self.server.version
            self.server.wake()
            # Longer than the longest pause and the longest silence.
            await self.clock.advance(150)
            try:
                truth = sorted(map(identity, self.server.objects.values()))
                assert sorted(map(identity, list(self.informer.store.each()))) == truth
                for listener in self.listeners:
                    assert not listener.wrong
                    assert sorted(listener.known.values()) == truth
                assert self.informer.store.resource_version == self.server.version
            finally:
                self.task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self.task

        with self.runner:
            self.runner.run(finish())


@pytest.mark.guarantee("S-4", "S-5", "S-11", "R-3", "R-26")
def test_histories_are_told_in_order_and_end_in_the_truth() -> None:
    run_state_machine_as_test(InformerMachine, settings=settings(stateful_step_count=30))
