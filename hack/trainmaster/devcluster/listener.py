"""Where a cluster listens: on the loopback interface, at the port of a real cluster if it is free, the same from run to
run.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from trainmaster.devcluster.state import PortInUse

HOST = "127.0.0.1"

# The port of a real cluster if it is free; neighbours of it for further clusters on the same machine; else any.
_FIRST_PORT, _NEIGHBOURS = 6443, 20

_T = TypeVar("_T")


def url_of(port: int) -> str:
    """Return the URL of the API server."""
    return f"https://{HOST}:{port}"


def candidate_ports(wanted: int | None, *, before: int | None) -> Iterator[int]:
    """Yield the ports to try, the best one first: the wanted one only, or the one it had before, or a free one."""
    if wanted:
        yield wanted
        return
    if before is not None:
        yield before
    yield from range(_FIRST_PORT, _FIRST_PORT + _NEIGHBOURS)
    yield from (free_port() for _ in range(_NEIGHBOURS))


def free_port(*, before: int = 0) -> int:
    """Have the operating system choose a port, and keep it for a server that is started within the next minute.

    A connection that was closed from this side stays in TIME_WAIT: until then the kernel gives the port to nobody who
    asks for any port, be it to listen or to connect, while a server (with SO_REUSEADDR, as all have) can have it.

    Args:
        before: The port to keep if it is free.
    """
    try:
        listening = socket.create_server((HOST, before))
    except OSError:
        listening = socket.create_server((HOST, 0))
    with listening:
        port: int = listening.getsockname()[1]
        with socket.create_connection((HOST, port)):
            listening.accept()[0].close()
    return port


async def listen_on_first(ports: Iterable[int], serve: Callable[[int], Awaitable[_T]]) -> _T:
    """Serve on the first port that can be had; returns what `serve` does.

    Raises:
        PortInUse: None of the ports can be had.
    """
    port, reason = 0, "no port is left"
    for port in ports:
        try:
            return await serve(port)
        except OSError as error:
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise
            reason = os.strerror(error.errno)
    raise PortInUse(f"cannot listen on {HOST}:{port}: {reason}; choose another port with --port, or 0 for a free one")
