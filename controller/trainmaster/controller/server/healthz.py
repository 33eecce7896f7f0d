"""What the manager serves about itself: the probes (healthz, readyz, parts of them by name), and `/metrics`.

Guarantees:
- Liveness answers as long as the event loop turns; it fails for a leader that cannot renew its lease (L-13).
- Readiness is given once the caches are filled, and taken back when the manager is told to stop.
- M-3: metrics are served by every replica, leader or not, in the format of Prometheus.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from trainmaster.metrics.registry import REGISTRY

Checker = Callable[[], str | None]
"""Returns None if all is well, else what is wrong."""


def probes(
    *,
    liveness: str,
    readiness: str,
    is_alive: Checker,
    is_ready: Checker,
    checks: Mapping[str, Checker] | None = None,
) -> web.Application:
    """Build the application of the probes.

    Args:
        liveness: Path of the liveness probe, without the slash.
        readiness: Path of the readiness probe, likewise.
        is_alive: Returns None while the process is of use, else why it should be started again.
        is_ready: Returns None when ready, else what is still missing.
        checks: Parts of these that have a path of their own, by path without the first slash.
    """
    app = web.Application()
    app.add_routes(
        [
            web.get(f"/{liveness}", _probe(is_alive, otherwise="not healthy")),
            web.get(f"/{readiness}", _probe(is_ready, otherwise="not ready")),
            *(web.get(f"/{path}", _probe(check, otherwise="failed")) for path, check in (checks or {}).items()),
        ]
    )
    return app


def _probe(check: Checker, *, otherwise: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(_: web.Request) -> web.Response:
        error = check()
        if error is None:
            return web.Response(text="ok")
        return web.Response(status=500, text=f"{otherwise}: {error}")

    return respond


def metrics() -> web.Application:
    """Build the application of the metrics endpoint."""

    async def expose(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})

    app = web.Application()
    app.add_routes([web.get("/metrics", expose)])
    return app
