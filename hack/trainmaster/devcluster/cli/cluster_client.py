"""A client of a running cluster, which finds it by its state directory; without a client library, which takes long to
import.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Final

from trainmaster.devcluster.manager.health import PATH, ManagerStatus
from trainmaster.devcluster.state import StateDirectory
from trainmaster.runtime.jsontree import JsonObject

_TIMEOUT: Final = 5.0


class ClusterUnreachable(Exception):
    """The server does not answer as it should; the text says so."""


def get(state: StateDirectory, server: str, path: str, *, timeout: float = _TIMEOUT) -> JsonObject:
    """Get an object from the cluster; `timeout` is in seconds of silence. Raises `ClusterUnreachable`."""
    try:
        found: JsonObject = json.loads(_read(state, server, path, timeout=timeout))
    except (OSError, HTTPException, ValueError) as error:
        raise ClusterUnreachable(f"the server does not answer as it should ({error})") from error
    return found


def failed_checks(state: StateDirectory, server: str) -> list[str]:
    """Return what keeps the API server from being ready, for each check that fails; raises `ClusterUnreachable`."""
    try:
        _read(state, server, "/readyz")
    except urllib.error.HTTPError as error:
        lines = error.read().decode("utf-8", "replace").splitlines()
        return [line.partition(" failed: ")[2] for line in lines if line.startswith("[-]")] or [str(error)]
    except (OSError, HTTPException, ValueError) as error:
        raise ClusterUnreachable(f"the server does not answer as it should ({error})") from error
    return []


def _read(state: StateDirectory, server: str, path: str, *, timeout: float = _TIMEOUT) -> bytes:
    context = ssl.create_default_context(cafile=str(state.certificates / "ca.crt"))
    # No proxy, whatever the environment says: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    token = state.token.read_text(encoding="ascii").strip()
    request = urllib.request.Request(  # noqa: S310 - the URL is from our own files, and https
        server + path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"}
    )
    with opener.open(request, timeout=timeout) as answer:
        content: bytes = answer.read()
        return content


def get_manager_status(state: StateDirectory, server: str) -> ManagerStatus:
    """Get the status of the manager of the cluster; raises `ClusterUnreachable`."""
    try:
        return ManagerStatus.from_json(get(state, server, PATH))
    except (KeyError, TypeError) as error:
        raise ClusterUnreachable(f"the server tells of its manager in an unknown form ({error!r})") from error
