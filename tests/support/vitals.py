"""What a manager uses of its machine, and how much work a function does on whatever machine."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import aiohttp

_ESTABLISHED = "01"
_TASKS = re.compile(rb"^trainmaster_asyncio_tasks\S* (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Vitals:
    """One measurement of one process, or the medians of several."""

    memory: float
    """Resident memory in MiB."""

    files: float
    connections: float
    """To the API server."""

    tasks: float

    def exceeds(self, other: "Vitals") -> bool:
        """Whether there is more of something that can be counted."""
        return self.files > other.files or self.connections > other.connections or self.tasks > other.tasks

    def __str__(self) -> str:
        return (
            f"{self.memory:.1f} MiB, {self.files:g} open files, {self.connections:g} connections, {self.tasks:g} tasks"
        )


async def measure(pid: int, *, server_port: int, metrics_port: int) -> Vitals:
    """Measure a process that talks to an API server at one port and serves its metrics at another."""
    resident = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert resident
    files = [_target(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    # The connection by which we ask for the metrics is not the manager's doing.
    connections = _connections(server_port) & set(files)
    return Vitals(
        memory=int(resident[1]) / 1024, files=len(files), connections=len(connections), tasks=await _tasks(metrics_port)
    )


def typical(samples: list[Vitals]) -> Vitals:
    """The medians."""
    return Vitals(
        memory=median(sample.memory for sample in samples),
        files=median(sample.files for sample in samples),
        connections=median(sample.connections for sample in samples),
        tasks=median(sample.tasks for sample in samples),
    )


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except FileNotFoundError:
        return ""  # closed meanwhile


def _connections(port: int) -> set[str]:
    """The sockets of this machine that are connected to a port, as the links of open files name them."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _ESTABLISHED and int(fields[2].rpartition(":")[2], 16) == port:
            found.add(f"socket:[{fields[9]}]")
    return found


async def _tasks(port: int) -> float:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as response,
    ):
        found = _TASKS.search(await response.read())
    assert found, "the manager does not tell how many tasks it has"
    return float(found[1])


class Calls:
    """How many functions were called, of Python and in C; a generator that goes on counts as called."""

    count = 0


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count the calls in a block, of this thread."""
    calls = Calls()

    def note(_frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            calls.count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def calls_of(function: Callable[[], object]) -> int:
    """Return how many calls a function makes."""
    with counted_calls() as calls:
        function()
    return calls.count
