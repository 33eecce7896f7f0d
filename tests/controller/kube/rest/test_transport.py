"""Connections of a client: for how long they are waited for, used again, and when they are closed."""

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from support.authorities import Authority
from support.oddrequests import OBJECT, open_connections, reset

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import (
    KubeError,
    MalformedResponse,
    NotConnected,
    NotLeading,
    RequestTimeout,
)
from trainmaster.controller.kube.rest.partial import (
    is_well_typed,
    partial_metadata,
    read_frame,
    read_items,
    read_object,
)
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS
from trainmaster.controller.kube.rest.watch import decode_event
from trainmaster.runtime.jsontext import JsonError
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject, why_unreadable


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    return web.Response()


async def test_refused_connection(clock: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    config = RestConfig(server=f"http://127.0.0.1:{port}")
    async with KubeClient(config, user_agent="test", clock=clock) as client:
        with pytest.raises(NotConnected, match=f"127.0.0.1:{port}"):
            await client.create(CONFIGMAPS, OBJECT)
    assert len(clock.slept) == 4


@pytest.mark.guarantee("P-36")
async def test_leaving_a_watch_closes_its_connection(server: Any, client: KubeClient, until: Any) -> None:
    server.on("watch", server.stream(then="hang"))
    async with client.watch(PODS, resource_version="5", timeout_seconds=300):
        await until(lambda: server.open_streams == 1)
    await until(lambda: server.open_streams == 0)
    assert server.seen[0].query == {
        "watch": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "300",
        "allowWatchBookmarks": "true",
    }


@pytest.mark.guarantee("T-4")
async def test_connections_of_watches_do_not_starve_requests(server: Any, clock: Any, until: Any) -> None:
    config = RestConfig(server=server.url)
    server.on("list", server.reply(200, OBJECT))
    async with (
        KubeClient(config, user_agent="test", clock=clock, connections=1) as client,
        asyncio.TaskGroup() as tasks,
    ):

        async def hold() -> None:
            async with client.watch(PODS, resource_version="5", timeout_seconds=300):
                await asyncio.sleep(3600)

        held = [tasks.create_task(hold()) for _ in range(3)]
        await until(lambda: server.open_streams == 3)
        assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
        for task in held:
            task.cancel()


@pytest.mark.guarantee("P-4")
@pytest.mark.parametrize("answer", ["none", "begun", "begun refusal"])
async def test_an_answer_that_is_late_to_end_is_given_up(server: Any, clock: Any, until: Any, answer: str) -> None:
    """The limit covers the whole of a request, not only its beginning; also of a refusal."""
    answers = {
        "none": never,
        "begun": server.stream(b'{"kind":', then="hang"),
        "begun refusal": server.stream(b"<html>", then="hang", status=502),
    }
    server.on("list", answers[answer])
    async with KubeClient(RestConfig(server=server.url), user_agent="test", clock=clock, timeout=5, tries=1) as client:
        request = asyncio.create_task(client.get(PODS, "ns", "a"))
        await until(lambda: server.open_streams if answer != "none" else server.seen)
        clock.step(5)
        with pytest.raises(RequestTimeout, match=r"GET http://.*/pods/a: no complete answer within 5 s"):
            await request


@pytest.mark.guarantee("P-4")
async def test_watch_that_does_not_open_times_out(server: Any, client: KubeClient, clock: Any, until: Any) -> None:
    server.on("watch", never)
    opening = asyncio.create_task(client.watch(PODS, resource_version="5", timeout_seconds=300).__aenter__())
    await until(lambda: server.seen)
    clock.step(5)
    with pytest.raises(RequestTimeout):
        await opening


@pytest.mark.guarantee("P-36")
async def test_every_answer_gives_its_connection_back(server: Any, clock: Any) -> None:
    """With one connection only, whatever becomes of the answers, the next request finds it or a new one."""
    answers = [
        server.reply(200, OBJECT),
        server.status(404, "NotFound"),
        server.reply(200, b"<html>"),
        server.stream(b"x" * 2000),
        server.stream(b"x" * 2**21, status=500),
        reset,
    ]
    config = RestConfig(server=server.url)
    async with KubeClient(
        config, user_agent="test", clock=clock, connections=1, tries=1, timeout=2.0, response_limit=1000
    ) as client:
        for answer in answers:
            server.on("list", answer, server.reply(200, OBJECT))
            with suppress(KubeError):
                await client.get(PODS, "ns", "a")
            assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
            assert open_connections("request") == 1
    assert open_connections("request") == 0


@pytest.mark.guarantee("P-36", "L-12")
async def test_leaving_the_client_closes_what_was_given_up(tmp_path: Path) -> None:
    """A server that does not answer, not even to the end of TLS, holds no connection of a client that is gone."""
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    asked, over = asyncio.Semaphore(0), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        cast("asyncio.Transport", writer.transport).pause_reading()
        asked.release()
        await over.wait()
        writer.transport.abort()

    listener = await asyncio.start_server(say_nothing, "127.0.0.1", 0, ssl=authority.server_context(tmp_path))
    config = RestConfig(server=f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}", ssl_context=trusting)
    async with listener:
        async with KubeClient(config, user_agent="test") as client:
            request = asyncio.create_task(client.get(PODS, "ns", "a"))
            watch = asyncio.create_task(client.stream("/").__aenter__())
            await asked.acquire()
            await asked.acquire()
            request.cancel()
            watch.cancel()
            await asyncio.wait((request, watch))
        left = open_connections("request"), open_connections("watch")
        over.set()
    assert left == (0, 0)


async def test_a_write_that_waited_for_a_connection_asks_the_guard_before_it_leaves(
    server: Any, clock: Any, until: Any
) -> None:
    """The lease may be lost while a write waits behind another one."""
    leads, answers = True, asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await answers.wait()
        return web.json_response(OBJECT, status=201)

    def guard() -> None:
        if not leads:
            raise NotLeading("the lease is lost")

    server.on("POST", slow, slow)
    config = RestConfig(server=server.url)
    async with KubeClient(config, user_agent="test", clock=clock, connections=1, guard=guard) as client:
        first = asyncio.create_task(client.create(CONFIGMAPS, OBJECT))
        await until(lambda: len(server.seen) == 1)
        second = asyncio.create_task(client.create(CONFIGMAPS, OBJECT))
        await asyncio.sleep(0)
        leads = False
        answers.set()
        assert await first == OBJECT
        with pytest.raises(NotLeading):
            await second
        leads = True
        assert await client.create(CONFIGMAPS, OBJECT) == OBJECT, "its turn was not lost"
    assert len(server.seen) == 2


async def test_what_is_not_written_yet_when_the_lease_is_lost_is_not_written(server: Any) -> None:
    """The guard is asked with the connection in hand, and again before each piece that goes out later."""
    asked = list[bool]()

    def guard() -> None:
        asked.append(not asked)
        if not asked[-1]:
            raise NotLeading("the lease is lost")

    written = {**OBJECT, "data": {"x": "x" * 2**20}}
    async with KubeClient(RestConfig(server=server.url), user_agent="test", guard=guard) as client:
        with pytest.raises(NotLeading, match="the lease is lost"):
            await client.create(CONFIGMAPS, written)
        assert asked == [True, False]
    assert server.seen == []


METADATA = {"name": "x", "namespace": "tenant", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
ODD = {
    "deep": b"[" * 5000 + b"]" * 5000,
    "deeper than ours": b'{"a":' * 300 + b"1" + b"}" * 300,
    "half a character": b'"\\ud800"',
    "no character": b'"\xff\xfe"',
    "infinite": b"1e999",
    "long": b"1" * 400,
}


def with_spec(spec: bytes, metadata: bytes = orjson.dumps(METADATA)) -> bytes:
    """An object with a spec of some text."""
    return b'{"apiVersion":"v1","kind":"Thing","metadata":' + metadata + b',"spec":{"a":[' + spec + b"]}}"


@pytest.mark.parametrize("spec", ODD.values(), ids=ODD)
def test_of_an_object_that_cannot_be_read_the_metadata_is_kept(spec: bytes) -> None:
    obj, end = read_object(with_spec(spec))
    assert end == len(with_spec(spec))
    assert obj == {"apiVersion": "v1", "kind": "Thing", "metadata": METADATA, UNREADABLE: why_unreadable(obj)}
    assert (why_unreadable(obj) or "").startswith("spec: ")


@pytest.mark.parametrize("fields", ODD.values(), ids=ODD)
def test_managed_fields_that_cannot_be_read_are_left_out_and_the_rest_is_whole(fields: bytes) -> None:
    metadata = orjson.dumps(METADATA)[:-1] + b',"managedFields":[{"fieldsV1":' + fields + b"}]}"
    obj, _ = read_object(with_spec(b"1", metadata))
    assert obj == {"apiVersion": "v1", "kind": "Thing", "metadata": METADATA, "spec": {"a": [1]}}


@pytest.mark.parametrize("spec", ODD.values(), ids=ODD)
def test_an_event_of_an_object_that_cannot_be_read_is_an_event(spec: bytes) -> None:
    for line in (
        b'{"type":"MODIFIED","object":' + with_spec(spec) + b"}",
        b' { "object" : ' + with_spec(spec) + b' , "type" : "MODIFIED" } \n',
    ):
        obj = read_frame(line)["object"]
        assert obj["metadata"] == METADATA
        assert (read_frame(line)["type"], UNREADABLE in obj) == ("MODIFIED", True)
        assert decode_event(line).type == "MODIFIED"


@pytest.mark.guarantee("P-8")
@pytest.mark.parametrize("cut", [1, 30, 60, 200, 5000, 10_100])
def test_a_frame_that_was_cut_is_no_event(cut: int) -> None:
    line = b'{"type":"ADDED","object":' + with_spec(ODD["deep"]) + b"}"
    with pytest.raises(MalformedResponse):
        decode_event(line[:-cut])


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" ", b"[]", b"1", b"{", b'{"a"', b'{"a":', b'{"a":}', b'{"a":1', b"{1:2}", b"{a:1}", b'{"metadata":1}'),
        *(
            b'{"metadata":{}',
            b'{"a":1}',
            b'{"a":[}',
            b'{"metadata":{} "a":1}',
            b'{"a":1,"metadata":',
            b'{"metadata":{"a"}}',
        ),
    ],
)
def test_what_is_no_object_is_an_error(text: bytes) -> None:
    with pytest.raises(JsonError):
        read_object(text)


TEXTS = st.sampled_from(["a", '"', "\\", '"}', "{", "]", "metadata", "é", "\n"])
VALUES = st.recursive(
    TEXTS | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4).map(lambda obj: {**obj, "metadata": METADATA})


def encoded(tree: Any, *, spaces: bool) -> bytes:
    """JSON as servers write it, or as proxies do."""
    return orjson.dumps(tree, option=orjson.OPT_INDENT_2 if spaces else None)


@given(
    OBJECTS.filter(lambda obj: all(type(value) is not int or abs(value) < 2**63 for value in obj.values())),
    st.booleans(),
)
def test_what_can_be_read_comes_out_as_it_is(obj: JsonObject, spaces: bool) -> None:
    try:
        text = encoded(obj, spaces=spaces)
    except orjson.JSONEncodeError:
        return
    assert read_object(text) == (orjson.loads(text), len(text))


@given(st.lists(OBJECTS, max_size=4), st.booleans())
def test_items_come_out_as_they_are(items: list[JsonObject], spaces: bool) -> None:
    try:
        text = encoded(items, spaces=spaces)
    except orjson.JSONEncodeError:
        return
    found = list(read_items(text, 1))
    assert [item for item, _ in found] == orjson.loads(text)
    assert not found or found[-1][1] == len(text) - 1


@pytest.mark.parametrize("rest", [b"", b"{}", b"[1]", b"1", b'{"metadata":{}}', b"]"])
def test_items_of_a_list_that_was_cut_are_an_error(rest: bytes) -> None:
    with pytest.raises(JsonError):
        list(read_items(b'[{"metadata":{"name":"a"}} ' + rest.removesuffix(b"]"), 1))


ODD_METADATA: dict[str, list[Any]] = {
    "namespace": [0, [], {}],
    "labels": ["x", [], {"a": 1}, {"a": None}],
    "ownerReferences": ["x", {}, [1], [{}], [{"kind": "A", "name": "b", "uid": 1, "apiVersion": "v1"}]],
    "finalizers": ["x", [1], {}],
    "generation": ["1"],
}


@pytest.mark.parametrize("odd", [{name: odd} for name, values in ODD_METADATA.items() for odd in values], ids=str)
def test_metadata_that_is_kept_has_the_types_of_the_api(odd: JsonObject) -> None:
    obj: JsonObject = {"apiVersion": "v1", "kind": 7, "metadata": {**METADATA, **odd, "other": [1]}, "spec": {}}
    assert not is_well_typed(obj["metadata"])
    kept = partial_metadata(obj, "why")
    sound = {name: value for name, value in METADATA.items() if name not in odd}
    assert kept == {"apiVersion": "v1", "metadata": sound, UNREADABLE: "why"}
    assert is_well_typed(kept["metadata"])
