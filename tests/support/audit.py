"""Reading the audit log of the embedded cluster: who wrote what, and when."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import orjson

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class AuditedWrite:
    """A request that was to change something, or asked for one object."""

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int | None
    """None: it got no answer, and whether it changed anything is unknown."""

    received: float
    """Unix time."""

    answered: float

    @property
    def may_have_counted(self) -> bool:
        """Whether it was not refused for certain."""
        return self.code is None or self.code < 300


class AuditLogReader:
    """Follows one audit log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reads: list[AuditedWrite] = []
        self._offset = 0
        self.writes: list[AuditedWrite] = []
        """All writes that were read so far, in the order of their answers."""

    def read(self) -> list[AuditedWrite]:
        """Read what is new in the log; returns all writes so far."""
        self.writes.extend(self._new())
        return self.writes

    def by(self, user: str) -> list[AuditedWrite]:
        """Read what is new; returns the writes of one user."""
        return [write for write in self.read() if write.user == user]

    def reads(self, user: str) -> list[AuditedWrite]:
        """Read what is new; returns the requests by which one user asked for single objects."""
        self.read()
        return [read for read in self._reads if read.user == user]

    def _new(self) -> Iterator[AuditedWrite]:
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                event = orjson.loads(line)
                if event["verb"] in WRITES:
                    yield _write(event)
                elif event["verb"] == "get":
                    self._reads.append(_write(event))


def _write(event: dict[str, dict[str, str]]) -> AuditedWrite:
    reference = event.get("objectRef", {})
    code = event.get("responseStatus", {}).get("code")
    return AuditedWrite(
        user=event["user"].get("username", ""),
        verb=str(event["verb"]),
        resource=reference.get("resource", ""),
        subresource=reference.get("subresource", ""),
        namespace=reference.get("namespace", ""),
        name=reference.get("name", ""),
        code=None if code is None else int(code),
        received=_seconds(event["requestReceivedTimestamp"]),
        answered=_seconds(event["stageTimestamp"]),
    )


def _seconds(moment: object) -> float:
    return datetime.fromisoformat(str(moment)).timestamp()
