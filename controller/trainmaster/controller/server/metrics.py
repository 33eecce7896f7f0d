"""The metrics endpoint, in the format of Prometheus.

Guarantee: M-3: metrics are served by every replica, leader or not.
"""

from __future__ import annotations

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from trainmaster.metrics.registry import REGISTRY


def metrics() -> web.Application:
    """Build the application of the metrics endpoint."""

    async def expose(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})

    app = web.Application()
    app.add_routes([web.get("/metrics", expose)])
    return app
