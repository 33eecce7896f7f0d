"""On which port a cluster listens: the one of a real cluster if it is free, the same from run to run."""

from __future__ import annotations

import socket
from collections.abc import Iterator

HOST = "127.0.0.1"

# The port of a real cluster if it is free; neighbours of it for further clusters on the same machine; else any.
_FIRST_PORT, _NEIGHBOURS = 6443, 20


def candidate_ports(wanted: int | None, *, before: int | None) -> Iterator[int]:
    """Yield the ports to try, the best one first: the wanted one only, or the one it had before, or a free one."""
    if wanted:
        yield wanted
        return
    if before is not None:
        yield before
    yield from range(_FIRST_PORT, _FIRST_PORT + _NEIGHBOURS)
    yield from (free_port() for _ in range(_NEIGHBOURS))


def free_port() -> int:
    """Let the operating system choose; somebody else may be faster to use it, which is why there are several tries."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
