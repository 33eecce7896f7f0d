"""What the conformance suite stands on: the server under test and a plain HTTP client of it.

The target is the embedded cluster, or the cluster of the kubeconfig that TRAINMASTER_TEST_KUBECONFIG names. Tests see
nothing of either but HTTP: whatever they expect has to hold on a real API server, too. How often a refusal
names one cause, and the words of some texts, are those of 1.36.
"""

import asyncio
import io
import os
import secrets
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import aiohttp
import orjson
from support.commands import TIMEOUT, eventually
from support.stack import KUBECONFIG_VARIABLE

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.settings import GARBAGE_COLLECTION, ClusterSettings
from trainmaster.devcluster.state import StateDirectory
from trainmaster.runtime.jsontree import JsonObject

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

NAMESPACE_PATIENCE = 300.0
"""Seconds for the end of a namespace: a busy controller manager comes to look at what is left in it late, and again
later if something was."""

Names: TypeAlias = list[str]  # inside the collection, `list` is a method

_T = TypeVar("_T")


@dataclass(frozen=True)
class Target:
    """A running API server, and an event loop on a thread of its own for what outlives a test."""

    access: RestConfig
    embedded: bool
    _loop: asyncio.AbstractEventLoop

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run something to its end, outside of any test's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=4 * TIMEOUT)


@contextmanager
def running_target(directory: Path) -> Iterator[Target]:
    """Start the embedded cluster, with garbage collection and without kubelet, or turn to the given one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="conformance-target", daemon=True)
    thread.start()
    cluster: Cluster | None = None

    async def start() -> RestConfig:
        nonlocal cluster
        if kubeconfig := os.environ.get(KUBECONFIG_VARIABLE):
            return await load_config(kubeconfig=kubeconfig)
        state = StateDirectory(directory)
        cluster = Cluster(ClusterSettings(state=state, port=0, parts=frozenset({GARBAGE_COLLECTION})))
        await cluster.start()
        return await load_config(kubeconfig=str(state.kubeconfig))

    async def stop() -> None:
        if cluster is not None:
            await cluster.stop()

    try:
        access = asyncio.run_coroutine_threadsafe(start(), loop).result(timeout=60)
        yield Target(access, cluster is not None, loop)
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(timeout=60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass(frozen=True)
class Answer:
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    warnings: tuple[str, ...] = ()
    """The texts of the `Warning` headers, without code and quotes."""

    @property
    def json(self) -> JsonObject:
        """The body, decoded."""
        decoded: JsonObject = orjson.loads(self.body)
        return decoded

    def ok(self, *statuses: int) -> JsonObject:
        """Return the object; fail if the request was refused or answered with another status."""
        assert self.status in (statuses or (200, 201)), f"{self.status}: {self.body[:600].decode(errors='replace')}"
        return self.json

    def refused(self, code: int, reason: str | None = None) -> JsonObject:
        """Return the Status of a refusal; fail if the request was not refused in this way."""
        assert self.status == code, f"{self.status}, not {code}: {self.body[:600].decode(errors='replace')}"
        status = self.json
        assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
        assert status["code"] == code
        if reason is not None:
            assert status.get("reason") == reason, status
        return status

    def causes(self, code: int = 422) -> list[tuple[str, str]]:
        """Return field and reason of every cause of a refusal."""
        details = self.refused(code, "Invalid" if code == 422 else None).get("details") or {}
        return [(cause.get("field", ""), cause["reason"]) for cause in details.get("causes") or ()]


class WatchRefused(Exception):
    """The server did not open the watch."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status}: {answer.body[:2000].decode(errors='replace')}")
        self.answer = answer


class Stream:
    """The events of one watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self._rest = b""

    async def next(self, timeout: float = TIMEOUT) -> JsonObject:
        """Return the next event; fail if none comes in time or the stream has ended."""
        event = await self._read(timeout)
        assert event is not None, "the watch ended"
        return event

    async def skip_to(self, *types: str) -> JsonObject:
        """Return the next event of one of these types."""
        while True:
            event = await self.next()
            if event["type"] in types:
                return event

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Return type and object name of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]

    async def rest(self, timeout: float = TIMEOUT) -> list[JsonObject]:
        """Return all events until the server ends the stream."""
        events = []
        while (event := await self._read(timeout)) is not None:
            events.append(event)
        return events

    async def _read(self, timeout: float) -> JsonObject | None:
        async with asyncio.timeout(timeout):
            while b"\n" not in self._rest:
                chunk = await self.response.content.readany()
                if not chunk:
                    return None
                self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        event: JsonObject = orjson.loads(line)
        return event


class Client:
    """Requests, as they are: no retries, no exceptions for refusals."""

    def __init__(self, session: aiohttp.ClientSession, access: RestConfig) -> None:
        self._session = session
        self._access = access

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Answer:
        """Send a request; a body of bytes goes out as it is, everything else as JSON."""
        async with self._request(
            method, path, body, accept=accept, query=query, content_type=content_type, headers=headers
        ) as response:
            warnings = tuple(
                text.partition(" - ")[2][1:-1].replace('\\"', '"') for text in response.headers.getall("Warning", [])
            )
            return Answer(response.status, response.headers, await response.read(), warnings)

    @asynccontextmanager
    async def watch(self, path: str, *, accept: str = JSON, **query: Any) -> AsyncIterator[Stream]:
        """Open a watch; raises `WatchRefused`."""
        async with self._request("GET", path, accept=accept, query={"watch": "true", **query}) as response:
            if response.status != 200:
                raise WatchRefused(Answer(response.status, response.headers, await response.read()))
            yield Stream(response)
            response.close()

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        accept: str,
        query: Mapping[str, Any],
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        sent = {"Accept": accept, **await self._access.headers(), **(headers or {})}
        if body is not None:
            sent["Content-Type"] = content_type
        async with self._session.request(
            method,
            self._access.server + path,
            params={name: str(value) for name, value in query.items()},
            data=None if body is None else io.BytesIO(body if isinstance(body, bytes) else orjson.dumps(body)),
            headers={name: value for name, value in sent.items() if value},
            proxy=self._access.proxy,
            server_hostname=self._access.server_hostname,
        ) as response:
            yield response

    def collection(self, group_version: str, plural: str, namespace: str | None = None) -> "Collection":
        """Return the objects of one resource, in one namespace or cluster-wide."""
        root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
        inside = f"/namespaces/{namespace}" if namespace else ""
        return Collection(self, f"{root}{inside}/{plural}")


@asynccontextmanager
async def connected(access: RestConfig) -> AsyncIterator[Client]:
    """Open a client."""
    connector = aiohttp.TCPConnector(ssl=access.ssl_context if access.ssl_context is not None else True)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT),
        headers={"User-Agent": "conformance/1.0"},
    ) as session:
        yield Client(session, access)


@dataclass(frozen=True)
class Collection:
    """The objects of one resource."""

    client: Client
    path: str

    def at(self, name: str, subresource: str | None = None) -> str:
        """Return the path of an object or of a subresource."""
        return f"{self.path}/{name}/{subresource}" if subresource else f"{self.path}/{name}"

    async def create(self, obj: Any, **options: Any) -> Answer:
        """POST an object."""
        return await self.client.send("POST", self.path, obj, **options)

    async def made(self, obj: JsonObject, **options: Any) -> JsonObject:
        """POST an object that the server accepts, and return it."""
        return (await self.create(obj, **options)).ok(201)

    async def get(self, name: str, *, subresource: str | None = None, **options: Any) -> Answer:
        """GET an object."""
        return await self.client.send("GET", self.at(name, subresource), **options)

    async def read(self, name: str) -> JsonObject:
        """GET an object that exists."""
        return (await self.get(name)).ok(200)

    async def list(self, **options: Any) -> Answer:
        """GET the collection."""
        return await self.client.send("GET", self.path, **options)

    async def names(self, **options: Any) -> Names:
        """Return the names of the listed objects."""
        return [item["metadata"]["name"] for item in (await self.list(**options)).ok(200)["items"]]

    async def put(
        self, obj: JsonObject, *, name: str | None = None, subresource: str | None = None, **o: Any
    ) -> Answer:
        """PUT an object."""
        return await self.client.send("PUT", self.at(name or obj["metadata"]["name"], subresource), obj, **o)

    async def patch(
        self, name: str, patch: Any, *, form: str = MERGE_PATCH, subresource: str | None = None, **options: Any
    ) -> Answer:
        """PATCH an object, by a merge patch unless told otherwise."""
        return await self.client.send("PATCH", self.at(name, subresource), patch, content_type=form, **options)

    async def apply(
        self, obj: JsonObject, *, manager: str = "applier", subresource: str | None = None, **options: Any
    ) -> Answer:
        """Apply an object on the server."""
        path = self.at(obj["metadata"]["name"], subresource)
        return await self.client.send("PATCH", path, obj, content_type=APPLY_PATCH, fieldManager=manager, **options)

    async def delete(self, name: str, body: JsonObject | None = None, **options: Any) -> Answer:
        """DELETE an object."""
        return await self.client.send("DELETE", self.at(name), body, **options)

    async def delete_many(self, body: JsonObject | None = None, **options: Any) -> Answer:
        """DELETE the collection."""
        return await self.client.send("DELETE", self.path, body, **options)

    def watch(self, **options: Any) -> Any:
        """Watch the collection."""
        return self.client.watch(self.path, **options)

    async def gone(self, name: str, *, patience: float = TIMEOUT) -> None:
        """Wait until there is no such object."""
        await eventually(lambda: self._is_gone(name), timeout=patience)

    async def _is_gone(self, name: str) -> bool:
        return (await self.get(name)).status == 404


def unique(prefix: str) -> str:
    """Return a name that nobody else uses."""
    return f"{prefix}-{secrets.token_hex(5)}"


@asynccontextmanager
async def new_namespace(client: Client, prefix: str = "conformance") -> AsyncIterator[str]:
    """Create a namespace, and let it go afterwards without waiting for its end."""
    namespaces = client.collection("v1", "namespaces")
    name = unique(prefix)
    await namespaces.made({"metadata": {"name": name}})
    try:
        yield name
    finally:
        await namespaces.delete(name)


def definition(
    schema: JsonObject,
    *,
    kind: str = "Thing",
    scope: str = "Namespaced",
    group: str | None = None,
    subresources: JsonObject | None = None,
    columns: list[JsonObject] | None = None,
    **version: Any,
) -> JsonObject:
    """Return a CustomResourceDefinition with one version, whose `spec` has the given schema."""
    group = group or f"{unique('g')}.conformance.test"
    plural = f"{kind.lower()}s"
    properties = {"spec": schema, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served: JsonObject = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {"status": {}} if subresources is None else subresources,
        **version,
    }
    if columns:
        served["additionalPrinterColumns"] = columns
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": {"kind": kind, "plural": plural}, "versions": [served]},
    }


def definitions(client: Client) -> Collection:
    """Return the CustomResourceDefinitions."""
    return client.collection("apiextensions.k8s.io/v1", "customresourcedefinitions")


def condition_of(obj: JsonObject, name: str) -> str:
    """Return the status of a condition, or nothing."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == name), "")


async def install(client: Client, crd: JsonObject) -> Collection:
    """Create a definition and wait until its resource is served; a real server takes a moment for that."""
    crds, name = definitions(client), crd["metadata"]["name"]
    await crds.made(crd)

    async def established() -> bool:
        return condition_of(await crds.read(name), "Established") == "True"

    await eventually(established)
    spec = crd["spec"]
    things = client.collection(f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["plural"])

    async def served() -> bool:
        return (await things.list()).status == 200

    await eventually(served)
    return things


@asynccontextmanager
async def installed(client: Client, crd: JsonObject, *, namespace: str | None) -> AsyncIterator[Collection]:
    """Install a definition for the time of the block; its objects, in one namespace."""
    await install(client, crd)
    spec = crd["spec"]
    try:
        yield client.collection(f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["plural"], namespace)
    finally:
        await definitions(client).delete(crd["metadata"]["name"])


def managers(obj: JsonObject) -> dict[tuple[str, str, str], JsonObject]:
    """Return the owned fields by manager, operation and subresource."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields") or ()
    }
