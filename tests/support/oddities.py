"""Objects as no sensible client writes them and an API server may still tell of them, and what slips them in.

They come as bytes, because some of them no encoder writes: ten thousand levels, halves of characters, numbers beyond
any float.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

import orjson
from support.reviews import ODD, Reviews

from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.kube.rest.transport import Guard, Response, Transport
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject

_Value = TypeVar("_Value")

NAMESPACE: Final = "odd"
_OWN = (TRAINJOBS, TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES, CONFIGMAPS, JOBSETS)
_NAMES: Final = 60

RAW: Final = [
    b"[" * 10_000 + b"]" * 10_000,
    *(b'{"a":' * levels + b"1" + b"}" * levels for levels in (100, 140, 148, 160, 254, 300, 1000, 1025, 5000)),
    *(b'"\\ud800"', b'"\xff\xfe"', b"1e999", b"-1e999", b"1" * 400, b"1" * 5000, b'"\\u0000"', b'"\xe2\x80\xa8"'),
    b'"' + b"x" * 1_000_000 + b'"',
    b"[" + b"[]," * 100_000 + b"1]",
    b"{" + b",".join(b'"k%d":%d' % (number, number) for number in range(30_000)) + b"}",
]
"""Values of which some cannot be decoded."""

_FIELDS: Final = (
    *("labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp", "generation", "uid", "name"),
)
_TEXTS: Final = [
    *("", "a: &a [1]\nb: *a", "<<: {a: 1}", "[" * 5000, "- " * 3000, "kind: TrainingRuntime", "\x00", "{" * 2000),
    "a: 1\n" * 3,
    "l0: &l0 {k: v}\n" + "\n".join(f"l{n}: &l{n} {{<<: [{','.join([f'*l{n - 1}'] * 9)}]}}" for n in range(1, 20)),
    "a:\n" + "- 1\n" * 100_000,
]
"""What users may write into the ConfigMap of a snapshot."""


def watched_kinds(framework: Framework) -> dict[str, tuple[str, str]]:
    """What a manager watches: API version and kind by plural."""
    kinds = {each.plural: (each.api_version, each.kind) for each in framework.watches() if each.reads}
    return kinds | {each.plural: (each.api_version, each.kind) for each in _OWN}


class OddObjects:
    """An endless stream of odd objects, the same for the same seed; TrainJobs and what belongs to them share names."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._reviews = Reviews(seed)

    def choice(self, values: Sequence[_Value]) -> _Value:
        """Choose one of some values."""
        return self._random.choice(values)

    def make(self, api_version: str, kind: str) -> bytes:
        """Make an object of a kind."""
        number = self._random.randrange(_NAMES)
        job = f"odd{number}"
        uid = f"uid-{number}-{self._random.randrange(3)}"
        obj = self._sensible(kind, job)
        owner = {"apiVersion": TRAINJOBS.api_version, "kind": "TrainJob", "name": job, "uid": uid, "controller": True}
        obj["metadata"] = {
            "name": {"TrainJob": job, "JobSet": job, "ConfigMap": f"{job}-runtime-snapshot"}.get(
                kind, f"{kind}{number}".lower()
            ),
            "namespace": NAMESPACE,
            "uid": uid if kind == "TrainJob" else f"{kind}-{self._random.randrange(10**9)}",
            "resourceVersion": str(self._random.randrange(1, 10**6)),
            **({} if kind == "TrainJob" else {"ownerReferences": [owner]}),
        }
        if kind.endswith("Runtime"):
            obj["metadata"]["name"] = self._random.choice(("rt", "torch-distributed", job))
        obj |= {"apiVersion": api_version, "kind": kind}
        return self._spoilt(obj)

    def _sensible(self, kind: str, job: str) -> JsonObject:
        made = self._reviews.odd_object(kind) if kind in ("TrainJob", "TrainingRuntime") else {}
        if kind == "ClusterTrainingRuntime":
            made = self._reviews.odd_object("TrainingRuntime")
        if kind == "ConfigMap":
            made["data"] = {"runtime": self._random.choice(_TEXTS)}
        if kind in ("JobSet", "TrainJob"):
            condition = {"type": self._random.choice(("Completed", "Failed", "Complete", "x")), "status": "True"}
            made["status"] = {"conditions": [condition, self._random.choice(ODD)]}
        return made

    def _spoilt(self, obj: JsonObject) -> bytes:
        metadata = obj["metadata"]
        raw: list[bytes] = []
        match self._random.randrange(8):
            case 0:
                metadata[self._random.choice(_FIELDS)] = self._random.choice(ODD)
            case 1:
                metadata["managedFields"] = self._managed_fields()
            case 2:
                metadata["managedFields"] = [{"manager": "trainer", "operation": "Apply", "fieldsV1": "RAW0"}]
                raw = [self._random.choice(RAW)]
            case 3:
                obj[self._random.choice(("spec", "status", "data"))] = self._random.choice(ODD)
            case 4 | 5:
                obj[self._random.choice(("spec", "status", "data", "other"))] = {"a": ["RAW0", {"b": "RAW1"}]}
                raw = [self._random.choice(RAW), self._random.choice(RAW[:17])]
            case _:
                pass
        text = orjson.dumps(obj)
        for number, value in enumerate(raw):
            text = text.replace(b'"RAW%d"' % number, value)
        return text

    def _managed_fields(self) -> Any:
        odd = self._random.choice
        fields = {odd(("f:spec", "k:{", 'k:{"a":1}', "v:[", "i:0", ".", "")): {odd(("f:a", "k:[]", "v:1")): odd(ODD)}}
        entry = {"manager": odd(("trainer", 7)), "operation": odd(("Apply", None)), "fieldsV1": odd((fields, *ODD))}
        return odd(([entry], [entry, odd(ODD)], odd(ODD), entry))


class OddTransport:
    """A transport to a real server, whose lists and watches have odd objects in between.

    Args:
        real: What asks the server.
        kinds: API version and kind by plural.
        lists: How many odd objects a list gets.
        streaming_lists: Whether the server offers streaming lists.
        seed: Of the objects in lists.
    """

    def __init__(
        self, real: Transport, kinds: Mapping[str, tuple[str, str]], *, lists: int, streaming_lists: bool, seed: int
    ) -> None:
        self._real = real
        self.kinds = kinds
        self._streaming_lists = streaming_lists
        self._lists = lists
        self._objects = OddObjects(seed)
        self._queues: dict[str, asyncio.Queue[bytes]] = {plural: asyncio.Queue(20) for plural in kinds}
        self.sent: Counter[str] = Counter()
        """Odd objects by the way that they went."""

    async def put(self, plural: str, frame: bytes) -> None:
        """Have the watch of a resource carry a frame; waits while it has others to carry."""
        await self._queues[plural].put(frame)

    async def drained(self) -> None:
        """Wait until all that was put has been carried."""
        for queue in self._queues.values():
            await queue.join()

    async def __aenter__(self) -> Self:
        await self._real.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._real.__aexit__(*exc_info)

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
    ) -> Response:
        """Send a request; what answers a list or a watch is made odd."""
        if "sendInitialEvents" in params and not self._streaming_lists:
            params = {**params, "sendInitialEvents": "unknown"}
        response = await self._real.send(
            method, path, params=params, headers=headers, body=body, streaming=streaming, guard=guard
        )
        plural = path.rpartition("/")[2]
        if method != "GET" or plural not in self.kinds or response.status != 200:
            return response
        return _OddResponse(response, self._watched(plural, response) if streaming else self._listed(plural, response))

    async def _watched(self, plural: str, response: Response) -> AsyncIterator[bytes]:
        queue, chunks = self._queues[plural], response.chunks()
        real = asyncio.ensure_future(_next(chunks))
        odd = asyncio.ensure_future(queue.get())
        whole = True
        try:
            while True:
                awaited: list[asyncio.Future[Any]] = [real, odd] if whole else [real]
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                if real.done():
                    chunk = await real
                    if chunk is None:
                        return
                    yield chunk
                    whole = chunk.endswith(b"\n")
                    real = asyncio.ensure_future(_next(chunks))
                elif odd.done():
                    yield odd.result()
                    self.sent["watch"] += 1
                    queue.task_done()
                    odd = asyncio.ensure_future(queue.get())
        finally:
            real.cancel()
            if odd.done() and not odd.cancelled():
                queue.task_done()
            odd.cancel()

    async def _listed(self, plural: str, response: Response) -> AsyncIterator[bytes]:
        head, seam, rest = b"".join([chunk async for chunk in response.chunks()]).partition(b'"items":[')
        odd = []
        for _ in range(self._lists):
            odd.append(self._objects.make(*self.kinds[plural]))
            await asyncio.sleep(0)
        self.sent["list"] += len(odd)
        yield head + seam + b",".join(odd) + (b"" if rest.startswith(b"]") else b",") + rest


class _OddResponse:
    """A response with another body."""

    def __init__(self, real: Response, chunks: AsyncIterator[bytes]) -> None:
        self._real = real
        self._chunks = chunks

    @property
    def status(self) -> int:
        return self._real.status

    @property
    def headers(self) -> Mapping[str, str]:
        return {name: value for name, value in self._real.headers.items() if name.lower() != "content-length"}

    def chunks(self) -> AsyncIterator[bytes]:
        return self._chunks

    def close(self) -> None:
        self._real.close()


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)
