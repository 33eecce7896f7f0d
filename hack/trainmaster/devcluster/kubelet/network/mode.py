"""The two ways in which pods find each other and their volumes, and which of them this host can offer.

- `namespaces` (Linux): each container has a root and an /etc/hosts of its own. Names and mount paths are as on a real
  cluster, also for programs that put them together themselves.
- `rewriting`, everywhere: names and paths are replaced in what programs are told.

In both, ports are rewritten, since all pods share the network of the host; but with `own_addresses` only those of pods
that share the ports of a rendezvous (see `addresses`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from dataclasses import dataclass
from typing import Literal

from trainmaster.devcluster.kubelet.runtime import supervisor
from trainmaster.devcluster.settings import NetworkingChoice
from trainmaster.runtime.jsontree import JsonObject

_PROBE_LIMIT = 10.0
_FEATURES = {
    "namespaces": "namespaces: pods have their own /etc/hosts, addresses and mounts; ports are rewritten per job",
    "own ports": "namespaces: pods have their own /etc/hosts, addresses and mounts; ports of JobSets are rewritten",
    "rewriting": "rewriting: pods share 127.0.0.1; names, ports and mount paths are rewritten in what they are told",
}


class NamespacesUnavailable(Exception):
    """Namespaces were asked for, and this host does not offer them."""


@dataclass(frozen=True, slots=True)
class Networking:
    """The mode in which pods run."""

    mode: Literal["namespaces", "rewriting"]
    reason: str = ""
    """Why it is not the better one."""

    user_namespace: bool = True
    """Whether namespaces need a user namespace around them."""

    own_addresses: bool = False
    """Whether what listens on all interfaces can be given the address of its pod, see `runtime.address_isolation`."""

    def __str__(self) -> str:
        """Describe the mode in one line."""
        features = _FEATURES["own ports" if self.own_addresses else self.mode]
        return features + (f" ({self.reason})" if self.reason else "")


REWRITING = Networking("rewriting", "as asked for")


async def choose_networking(wanted: NetworkingChoice) -> Networking:
    """Find out what works here, in a child process and by doing it.

    Raises:
        NamespacesUnavailable: Namespaces are wanted and do not work.
    """
    if wanted == "rewriting":
        return REWRITING
    result = await _probe()
    problem = result.get("error")
    if problem is None:
        return Networking("namespaces", user_namespace=result["user_namespace"], own_addresses=result["own_addresses"])
    if wanted == "namespaces":
        raise NamespacesUnavailable(
            f"pods cannot run in namespaces here: {problem}; use `--networking rewriting`, or allow user namespaces "
            "(see kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces and seccomp profiles)"
        )
    return Networking("rewriting", f"no namespaces here: {problem}")


async def _probe() -> JsonObject:
    if not sys.platform.startswith("linux"):
        return {"error": f"they are a feature of Linux, and this is {sys.platform}"}
    with tempfile.TemporaryDirectory(prefix="trainmaster-probe-") as directory:
        process = await asyncio.create_subprocess_exec(
            *supervisor.probe_command_line(directory),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_PROBE_LIMIT):
                stdout, stderr = await process.communicate()
        except TimeoutError:
            return {"error": f"the trial did not end within {_PROBE_LIMIT:g} seconds"}
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        result: JsonObject = json.loads(stdout)
    except ValueError:
        last = (stderr.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        return {"error": f"the trial failed: {last}"}
    return result
