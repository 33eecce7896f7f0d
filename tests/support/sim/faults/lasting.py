"""Faults that last: for the whole run, or for its first minutes."""

import asyncio

import orjson
from support.sim.faults.plan import Fault
from support.sim.loop import Process
from support.sim.server import Frames, Perform
from support.sim.wire import Answer, Pipe, Request, broken, refusal


class LastingFault(Fault):
    """Holds for the whole run, or for its first minutes."""

    def begin(self) -> None:
        """Prepare the world before anything runs in it."""
        network = self.world.server.network
        match self.plan.fault:
            case "no-bookmarks":
                network.bookmarks = False
            case "no-streaming-lists":
                network.streaming_lists = False
            case "pages":
                network.streaming_lists, network.page_size = False, 1
            case "expiring-pages":
                network.streaming_lists, network.page_size, network.pages_expire = False, 1, True
            case "slow":
                network.shortest, network.longest = 0.5, 3.0

    async def request(self, process: Process, request: Request, perform: Perform) -> Answer:
        """Carry a request to the server and its answer back."""
        chooser, now = self.world.chooser, self.world.loop.time()
        if self.plan.fault != "chaos" or now > CHAOS:
            return await perform()
        self.lasts(0.0)
        # A lease that nobody can renew says nothing about the writes that follow from holding it.
        if chooser.random() > (0.2 if request.target.resource != "leases" else 0.02):
            return await perform()
        before = chooser.random() < 0.5
        if not before:
            await perform()
        match chooser.randrange(5):
            case 0:
                return refusal(500, "InternalError")
            case 1:
                return refusal(429, "TooManyRequests", retry_after=1)
            case 2 if request.is_step and process in self.world.living:
                self.world.replace(process)
            case 3:
                await asyncio.sleep(20.0)
        raise broken(str(request))

    def stream(self, process: Process, request: Request, frames: Frames, pipe: Pipe) -> Frames:
        """Return the frames of a watch as they arrive."""
        match self.plan.fault:
            case "duplicates":
                return _duplicated(frames)
            case "coalesced":
                return self._coalesced(frames, self.world.server.known_to(request))
            case "late" if request.target.resource in self.plan.on.split("+"):
                return _late(frames)
            case "short-watches":
                return self._short(frames, pipe)
            case "chaos":
                return self._torn(frames)
        return frames

    async def _coalesced(self, frames: Frames, known: set[str]) -> Frames:
        """Of the events about one object that come close together, only the last arrives."""
        arrived: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def pull() -> None:
            async for frame in frames:
                arrived.put_nowait(frame)
            arrived.put_nowait(None)

        self.world.server.spawn(pull())
        while True:
            batch = [await arrived.get()]
            await asyncio.sleep(4.0)
            while not arrived.empty():
                batch.append(arrived.get_nowait())
            for frame in _last_states([frame for frame in batch if frame is not None], known):
                yield frame
            if batch[-1] is None:
                return

    async def _short(self, frames: Frames, pipe: Pipe) -> Frames:
        self.world.loop.call_later(self.world.chooser.uniform(2.0, 20.0), pipe.end)
        async for frame in frames:
            yield frame

    async def _torn(self, frames: Frames) -> Frames:
        async for frame in frames:
            if self.world.loop.time() < CHAOS and self.world.chooser.random() < 0.1:
                yield frame[: self.world.chooser.randrange(len(frame))]
                raise broken("watch")
            yield frame


CHAOS = 120.0
"""Seconds for which chaos lasts."""

LASTING_FAULTS = (
    *("none", "no-bookmarks", "no-streaming-lists", "pages", "expiring-pages", "slow", "duplicates", "coalesced"),
    *("short-watches", "chaos"),
)

LATE = "late"


async def _duplicated(frames: Frames) -> Frames:
    """Every event comes twice, the second time as a change of nothing."""
    async for frame in frames:
        yield frame
        if not frame.startswith(b'{"type":"BOOKMARK"'):
            yield frame.replace(b'{"type":"ADDED"', b'{"type":"MODIFIED"', 1)


async def _late(frames: Frames) -> Frames:
    """The events of this watch come long after those of the others."""
    async for frame in frames:
        if not frame.startswith(b'{"type":"BOOKMARK"'):
            await asyncio.sleep(7.0)
        yield frame


def _last_states(frames: list[bytes], known: set[str]) -> list[bytes]:
    latest: dict[str, tuple[str, bytes]] = {}
    for number, frame in enumerate(frames):
        event = orjson.loads(frame)
        metadata = event["object"]["metadata"]
        bookmark = event["type"] == "BOOKMARK"
        key = f"bookmark {number}" if bookmark else f"{metadata.get('namespace', '')}/{metadata['name']}"
        latest.pop(key, None)
        latest[key] = event["type"], frame
    shown = []
    for key, (kind, frame) in latest.items():
        if kind == "DELETED":
            if key in known:
                known.discard(key)
                shown.append(frame)
        elif kind == "BOOKMARK":
            shown.append(frame)
        else:
            seen = b"MODIFIED" if key in known else b"ADDED"
            known.add(key)
            shown.append(frame.replace(b'"type":"%s"' % kind.encode(), b'"type":"%s"' % seen, 1))
    return shown
