"""Freshness: a client that has seen a newer state than the server gets no older data.

That happens when a server was restarted without its files. Such a client waits for a moment and then gets 504 Timeout
with the cause ResourceVersionTooLarge, as from a real server whose watch cache lags behind.
"""

from __future__ import annotations

import asyncio

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.http.query import read_resource_version
from trainmaster.devcluster.apiserver.registry.generic import Api

_POLL_INTERVAL = 0.05


async def wait_until_fresh(api: Api, resource_version: str, *, seconds: float) -> None:
    """Wait until the server is as new as a client demands; 504 if it does not get there."""
    wanted = read_resource_version(resource_version) or 0
    if wanted <= api.revision:
        return
    try:
        async with asyncio.timeout(seconds):
            while wanted > api.revision:  # noqa: ASYNC110 - too rare to be worth a notification
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError as error:
        raise errors.resource_version_too_large(wanted, api.revision) from error
