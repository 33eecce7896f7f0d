"""Serving: the probes of the manager, and its metrics.

Guarantees:
- Liveness answers as long as the event loop turns; it fails for a leader that cannot renew its lease (L-13).
- Readiness is given once the caches are filled, and taken back when the manager is told to stop.
- M-3: metrics are served by every replica, leader or not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from trainmaster.metrics.registry import REGISTRY


class AddressInUse(Exception):
    """A server of the manager cannot bind its address."""


def parse_address(address: str) -> tuple[str | None, int]:
    """Split `host:port`, or `:port` for all interfaces.

    Raises:
        ValueError: It is not of that form.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"address {address!r} must be host:port or :port")
    return host.strip("[]") or None, int(port)


@asynccontextmanager
async def serving(app: web.Application, address: str, *, purpose: str) -> AsyncIterator[int]:
    """Serve an application while the block runs; yields the port.

    Raises:
        AddressInUse: The address cannot be bound; the message names it and its purpose.
    """
    host, port = parse_address(address)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise AddressInUse(
                f"cannot serve {purpose} on {address}: {error.strerror or error}; "
                "choose another address in the configuration"
            ) from error
        server = site._server  # noqa: SLF001 - aiohttp has no public way to learn an ephemeral port of a site
        yield server.sockets[0].getsockname()[1] if server else port  # type: ignore[attr-defined]
    finally:
        await runner.cleanup()


def probes(
    *,
    liveness: str,
    readiness: str,
    is_alive: Callable[[], str | None],
    is_ready: Callable[[], str | None],
    checks: Mapping[str, Callable[[], str | None]] | None = None,
) -> web.Application:
    """Build the application of the probes.

    Args:
        liveness: Path of the liveness probe, without the slash.
        readiness: Path of the readiness probe, likewise.
        is_alive: Returns None while the process is of use, else why it should be started again.
        is_ready: Returns None when ready, else what is still missing.
        checks: Parts of these that can be asked about on their own, by path without the first slash.
    """

    async def live(_: web.Request) -> web.Response:
        return _verdict(is_alive(), otherwise="not healthy")

    async def ready(_: web.Request) -> web.Response:
        return _verdict(is_ready(), otherwise="not ready")

    def single(check: Callable[[], str | None]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def ask(_: web.Request) -> web.Response:
            return _verdict(check(), otherwise="failed")

        return ask

    app = web.Application()
    app.add_routes([web.get(f"/{liveness}", live), web.get(f"/{readiness}", ready)])
    app.add_routes([web.get(f"/{path}", single(check)) for path, check in (checks or {}).items()])
    return app


def _verdict(objection: str | None, *, otherwise: str) -> web.Response:
    if objection is None:
        return web.Response(text="ok")
    return web.Response(status=500, text=f"{otherwise}: {objection}")


def metrics() -> web.Application:
    """Build the application of the metrics endpoint."""

    async def expose(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})

    app = web.Application()
    app.add_routes([web.get("/metrics", expose)])
    return app
