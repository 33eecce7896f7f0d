"""Faults: what can go wrong between a controller and its cluster, one class for each family.

A fault is named in a plan. It strikes at the k-th write of the managers (leases and events do not count, unless the
plan says so), at the n-th frame of the first watch of a resource, or as long as the run lasts.
"""

from dataclasses import dataclass, fields
from typing import Any

from support.sim.loop import Process
from support.sim.server import Frames, Interference
from support.sim.wire import Pipe, Request
from support.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One perturbed run; its text replays it."""

    scenario: str
    fault: str
    k: int = 0
    """The write at which the fault strikes."""
    n: int = 0
    """The frame at which it strikes; the number of events by which a cache lags."""
    on: str = ""
    """The resource whose watch, or whose writes, are meant; several are joined by `+`."""
    seed: int = 0

    def __str__(self) -> str:
        given = [(each.name, getattr(self, each.name)) for each in fields(self)]
        return " ".join(f"{name}={value}" for name, value in given if value or name == "seed")

    @classmethod
    def read(cls, text: str) -> "Plan":
        """Read what `str` wrote."""
        given: dict[str, Any] = dict(word.split("=", 1) for word in text.split())
        return cls(**given | {name: int(given[name]) for name in given.keys() & {"k", "n", "seed"}})


class Fault(Interference):
    """The base of all faults: disturbs nothing."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.pipes: list[tuple[Process, Pipe]] = []

    def begin(self) -> None:
        """Prepare the world before anything runs in it."""

    def stream(self, process: Process, request: Request, frames: Frames, pipe: Pipe) -> Frames:
        """Return the frames of a watch as they arrive."""
        self.pipes.append((process, pipe))
        return frames

    def lasts(self, seconds: float) -> None:
        """Note that the disturbance ends in so many seconds."""
        self.world.disturbed_until = max(self.world.disturbed_until, self.world.loop.time() + seconds)
