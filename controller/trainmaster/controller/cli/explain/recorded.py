"""What the history of the manager has of a job that is gone, where there is one and whoever asks may read it."""

from __future__ import annotations

import asyncio
from typing import Final

from trainmaster.controller.cli.history.sources import SourceError, of_cluster
from trainmaster.controller.history.query import InvalidQuery
from trainmaster.controller.history.record import JobRecord
from trainmaster.controller.history.store import HistoryUnavailable
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.manager.roles import NAME

_SERVICE: Final = f"kubeflow/{NAME}"
"""Where our manifests install it."""

_TIME_LIMIT: Final = 5.0
"""Seconds: mostly the name is misspelt, or nobody records a history."""


async def recorded(client: KubeClient, namespace: str, name: str) -> JobRecord | None:
    """Return what is recorded of the job of a name that ended last; None if nothing is, or nobody says."""
    try:
        async with asyncio.timeout(_TIME_LIMIT):
            source = await of_cluster(client, service=_SERVICE, token="")
            found = await source.find({"namespace": namespace, "name": name, "limit": "1"})
            return (await source.get(found[0].uid) or found[0]) if found else None
    except (SourceError, HistoryUnavailable, InvalidQuery, KubeError, TimeoutError):
        return None
