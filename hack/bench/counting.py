"""How many requests the manager has sent, from the audit log of the server; and what its metrics tell of its size."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import orjson
from prometheus_client.parser import text_string_to_metric_families

_NOT_WRITING: Final = frozenset({"get", "list", "watch"})
_STREAMED: Final = frozenset({"list", "watch"})


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests by what they are: `create jobsets`, `patch trainjobs/status`."""

    counts: Counter[str] = field(default_factory=Counter)

    def __sub__(self, earlier: Requests) -> Requests:
        return Requests(self.counts - earlier.counts)

    def __add__(self, other: Requests) -> Requests:
        return Requests(self.counts + other.counts)

    @property
    def single(self) -> int:
        """All but lists, watches and events."""
        streamed = sum(count for name, count in self.counts.items() if _verb(name) in _STREAMED)
        return self.counts.total() - streamed - self.events

    @property
    def events(self) -> int:
        """Those that tell what happened, which nothing waits for."""
        return sum(count for name, count in self.counts.items() if _resource(name) == "events")

    @property
    def writes(self) -> int:
        """Those that write."""
        return sum(count for name, count in self.counts.items() if _verb(name) not in _NOT_WRITING)

    @property
    def lists(self) -> int:
        """Those that list."""
        return sum(count for name, count in self.counts.items() if _verb(name) == "list")


class AuditReader:
    """Counts in an audit log the requests of one program, from now on."""

    def __init__(self, path: Path, *, user_agent: str) -> None:
        self._path = path
        self._user_agent = user_agent
        self._position = path.stat().st_size
        self._counts: Counter[str] = Counter()

    async def count(self) -> Requests:
        """Read what was appended since the last time."""
        with self._path.open("rb") as log:
            log.seek(self._position)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # the rest is being written
                self._position += len(line)
                self._see(orjson.loads(line))
        return Requests(self._counts.copy())

    def _see(self, event: dict[str, object]) -> None:
        reference = event.get("objectRef")
        if event.get("stage") != "ResponseComplete" or not isinstance(reference, dict):
            return
        if self._user_agent not in str(event.get("userAgent")) or reference["resource"] == "leases":
            return
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        self._counts[f"{event['verb']} {resource}"] += 1


class Counted(NamedTuple):
    """What the metrics of a manager tell of its size."""

    series: int
    cached_bytes: float
    """Of all objects in its caches, as they were read."""


def counted_in_metrics(text: str) -> Counted:
    """Count the series of a manager, and what it has cached."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    cached = sum(sample.value for sample in samples if sample.name == "trainmaster_informer_bytes")
    return Counted(len(samples), cached)


def _verb(name: str) -> str:
    return name.partition(" ")[0]


def _resource(name: str) -> str:
    return name.partition(" ")[2]
