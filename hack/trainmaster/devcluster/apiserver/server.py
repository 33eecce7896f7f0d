"""The API server of the embedded cluster: one `Api` over HTTP, behind the chain of filters.

Guarantees:
- `start` returns when the port answers; `stop` ends every watch in an orderly way and returns when nothing runs;
- no request is handled before it was authenticated and authorized;
- a client that disconnects cancels what was done for it.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from trainmaster.devcluster.apiserver.auth.authorizer import AlwaysAllowAuthorizer, Authorizer
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ServiceAccountTokens
from trainmaster.devcluster.apiserver.filters.audit import AuditLog
from trainmaster.devcluster.apiserver.filters.authentication import (
    Authenticator,
    with_authentication,
    with_impersonation,
)
from trainmaster.devcluster.apiserver.filters.authorization import with_authorization
from trainmaster.devcluster.apiserver.filters.panic_recovery import with_panic_recovery
from trainmaster.devcluster.apiserver.filters.serialization import with_serialization
from trainmaster.devcluster.apiserver.handlers.discovery import Discovery
from trainmaster.devcluster.apiserver.handlers.get import GetHandler
from trainmaster.devcluster.apiserver.handlers.nonresource import NonResourceHandler
from trainmaster.devcluster.apiserver.handlers.openapi import OpenApi
from trainmaster.devcluster.apiserver.handlers.pod_exec import ContainerExecutor
from trainmaster.devcluster.apiserver.handlers.pod_log import LogSource
from trainmaster.devcluster.apiserver.handlers.proxy import ResourceLocator
from trainmaster.devcluster.apiserver.handlers.reviews import REVIEWS, ReviewHandler
from trainmaster.devcluster.apiserver.handlers.router import ResourceHandler
from trainmaster.devcluster.apiserver.handlers.watch import WatchServer
from trainmaster.devcluster.apiserver.http.bodies import MAX_BODY_BYTES
from trainmaster.devcluster.apiserver.http.responsewriters import page_not_found, write_common_headers
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.runtime.version import __version__

_log = logging.getLogger(__name__)


def _is_ours(record: logging.LogRecord) -> bool:
    """Say whether an error is the server's: what clients send that is no HTTP, tokens perhaps, belongs in no log."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_log.addFilter(_is_ours)

# Selectors travel in the URL; client libraries write long ones.
_MAX_LINE = 64 * 1024
# Handlers that are still busy at a stop get this many seconds; watches do not need them.
_SHUTDOWN_TIMEOUT = 2.0


@dataclass(frozen=True, slots=True)
class ServerTiming:
    """How long things take, in seconds; tests shorten them."""

    bookmark_interval: float = 60.0
    """Between two bookmarks on a watch: the API server's own; clients count on about one bookmark a minute."""

    freshness_wait: float = 3.0
    """How long a reader may wait for a resource version that is not there yet."""


class ApiServer:
    """Serves one `Api` over HTTPS to holders of `token` and of service-account tokens.

    Without an `authorizer` everyone who is known may do everything. Every request goes to the `audit` log, which stays
    the caller's to close.

    `middlewares` handle requests that were authenticated and authorized, before the server's own handlers do; `routes`
    are served besides the paths of Kubernetes; `pre_shutdown_hooks` are called first when the server stops.
    """

    def __init__(
        self,
        api: Api,
        *,
        token: str,
        tokens: ServiceAccountTokens,
        locator: ResourceLocator,
        ssl_context: ssl.SSLContext,
        log_source: LogSource | None = None,
        executor: ContainerExecutor | None = None,
        authorizer: Authorizer | None = None,
        timing: ServerTiming | None = None,
        audit: AuditLog | None = None,
        middlewares: Iterable[Middleware] = (),
        routes: Iterable[web.AbstractRouteDef] = (),
        pre_shutdown_hooks: Iterable[Callable[[], None]] = (),
    ) -> None:
        timing = timing or ServerTiming()
        self._ssl_context = ssl_context
        self._runner: web.AppRunner | None = None
        self._watch_server = WatchServer(
            api, bookmark_interval=timing.bookmark_interval, freshness_wait=timing.freshness_wait
        )
        self._pre_shutdown_hooks = tuple(pre_shutdown_hooks)
        authorizer = authorizer or AlwaysAllowAuthorizer()
        authenticator = Authenticator(token, tokens)
        nonresource = NonResourceHandler(
            Discovery(api.registry, virtual=REVIEWS),
            OpenApi(api.registry, version=__version__),
            tokens,
            ready=lambda: not self._watch_server.stopped,
            check_store=api.store.check,
        )
        resources = ResourceHandler(
            api,
            getter=GetHandler(api, freshness_wait=timing.freshness_wait),
            watch_server=self._watch_server,
            reviews=ReviewHandler(authenticator, authorizer),
            tokens=tokens,
            log_source=log_source,
            executor=executor,
            locator=locator,
        )
        self._app = web.Application(
            middlewares=[
                *(() if audit is None else (audit.with_audit,)),
                with_serialization,
                with_panic_recovery,
                with_authentication(authenticator),
                with_impersonation(authorizer),
                with_authorization(authorizer, api),
                *middlewares,
            ],
            client_max_size=MAX_BODY_BYTES,
        )
        self._app.on_response_prepare.append(write_common_headers)
        self._app.add_routes(
            [
                *nonresource.routes(),
                *routes,
                web.route("*", "/api/{path:.+}", resources.handle),
                web.route("*", "/apis/{path:.+}", resources.handle),
                web.route("*", "/{path:.*}", _unknown_path),
            ]
        )

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen, and return the port; port 0 takes a free one."""
        if self._runner is not None:
            raise RuntimeError("the server was started already; make another one to serve again")
        self._runner = web.AppRunner(
            self._app,
            access_log=None,
            logger=_log,
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_TIMEOUT,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_LINE,
        )
        await self._runner.setup()
        try:
            # Not by asyncio: where another process listens first on a port that both have bound, its socket stays open.
            listening = socket.create_server((host, port))
            await web.SockSite(self._runner, listening, ssl_context=self._ssl_context).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening, end the streams and wait for the handlers; stopping twice is harmless."""
        if self._runner is None:
            return
        for hook in self._pre_shutdown_hooks:
            hook()
        self._watch_server.stop()
        await self._runner.cleanup()


async def _unknown_path(_request: web.Request) -> web.StreamResponse:
    return page_not_found()
