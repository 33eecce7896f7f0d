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
from trainmaster.devcluster.state import ClusterRecord, StateDirectory
from trainmaster.runtime.jsontree import JsonObject

_TIMEOUT: Final = 5.0


class ClusterUnreachable(Exception):
    """The server does not answer as it should; the text says so."""


def get(state: StateDirectory, record: ClusterRecord, path: str) -> JsonObject:
    """Get an object from the cluster; raises `ClusterUnreachable`."""
    try:
        context = ssl.create_default_context(cafile=str(state.certificates / "ca.crt"))
        # No proxy, whatever the environment says: the server is on this machine.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        token = state.token.read_text(encoding="ascii").strip()
        request = urllib.request.Request(  # noqa: S310 - the URL is from our own record, and https
            record.server + path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"}
        )
        with opener.open(request, timeout=_TIMEOUT) as answer:
            found: JsonObject = json.load(answer)
            return found
    except (OSError, HTTPException, ValueError) as error:
        raise ClusterUnreachable(f"the server does not answer as it should ({error})") from error


def get_manager_status(state: StateDirectory, record: ClusterRecord) -> ManagerStatus:
    """Get the status of the manager of the cluster; raises `ClusterUnreachable`."""
    try:
        return ManagerStatus.from_json(get(state, record, PATH))
    except (KeyError, TypeError) as error:
        raise ClusterUnreachable(f"the server tells of its manager in an unknown form ({error!r})") from error
