"""The machine: where processes listen, and whether it lets pods run in namespaces."""

import asyncio
import ipaddress
from pathlib import Path

import pytest

from trainmaster.devcluster.kubelet.network.mode import Networking, choose_networking

_LISTEN = "0A"


def descendants(pid: int) -> set[int]:
    """Return a process and all processes below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it is gone
            parents[int(entry.name)] = int(stat.rpartition(") ")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening_addresses(pids: set[int]) -> set[tuple[str, int]]:
    """Return the addresses and ports at which processes listen by TCP."""
    sockets = _sockets_of(pids)
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in sockets:
                address, _, port = fields[1].partition(":")
                found.add((_readable(address), int(port, 16)))
    return found


def _sockets_of(pids: set[int]) -> set[str]:
    sockets = set()
    for pid in pids:
        try:
            descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                target = str(descriptor.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                sockets.add(target.removeprefix("socket:[").removesuffix("]"))
    return sockets


def _readable(address: str) -> str:
    """Read an address as the kernel prints it: words of four bytes, each in the order of the machine."""
    raw = bytes.fromhex(address)
    words = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    return str(ipaddress.ip_address(words))


def _find_out() -> Networking:
    return asyncio.run(choose_networking("auto"))


FOUND = _find_out()
"""The mode that `auto` gives here."""

needs_namespaces = pytest.mark.skipif(FOUND.mode != "namespaces", reason=FOUND.reason or "namespaces work")
