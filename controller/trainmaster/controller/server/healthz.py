"""What the manager serves about itself: the probes (healthz, readyz, each check of them by name), and `/metrics`.

Guarantees:
- M-8: the form is that of kube-apiserver: `ok`, or status 500 and a line for each check, `[+]name ok` or
  `[-]name failed: reason`. `?verbose` has the lines in any case, `?exclude=name` leaves a check out, and each check has
  a path of its own: `/readyz/name`.
- Liveness asks nothing of anybody outside of this process, the API server included; it fails for a leader that cannot
  renew its lease (L-13).
- A check that raises has failed, and is told by the type of what it raised.
- M-3: metrics are served by every replica, leader or not, all families of them, in the format of Prometheus, or in that
  of OpenMetrics, with exemplars, for whoever asks for it.
- P-35: other tasks get a turn after each family: all series together take tens of milliseconds.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from trainmaster.metrics.families import register_families
from trainmaster.metrics.registry import REGISTRY

Checker: TypeAlias = Callable[[], "str | Awaitable[str | None] | None"]
"""Returns None if all is well, else what is wrong: probes are open to everybody, so no secret. It is called by each
probe and should be cheap."""

_HEADERS: Final = MappingProxyType({"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache, private"})


class Healthz:
    """The checks of liveness and readiness, by name; every part of the manager may add its own.

    Args:
        liveness: Path of the liveness probe, without the slash.
        readiness: Path of the readiness probe, likewise.
    """

    def __init__(self, *, liveness: str = "healthz", readiness: str = "readyz") -> None:
        self._liveness, self._readiness = liveness, readiness
        self._checks: dict[str, dict[str, Checker]] = {liveness: {}, readiness: {}}
        self._notes: dict[str, Callable[[], str | None]] = {}
        for probe in self._checks:
            self._add(probe, "ping", lambda: None)

    def add_healthz_check(self, name: str, check: Checker) -> None:
        """Add a check of liveness: what fails it is cured by another process only."""
        self._add(self._liveness, name, check)

    def add_readyz_check(self, name: str, check: Checker, *, note: Callable[[], str | None] = lambda: None) -> None:
        """Add a check of readiness: while it fails, nobody should send anything here.

        Args:
            note: Returns what those who ask for details get to read, although nothing is in the way.
        """
        self._add(self._readiness, name, check)
        self._notes[name] = note

    def _add(self, probe: str, name: str, check: Checker) -> None:
        if name in self._checks[probe]:
            raise ValueError(f"there are two checks called {name!r} of {probe}; give one of them another name")
        self._checks[probe][name] = check

    def application(self) -> web.Application:
        """Build the application of the probes."""
        app = web.Application()
        for probe in self._checks:
            app.router.add_get(f"/{probe}", partial(self._respond, probe))
            app.router.add_get(f"/{probe}/{{name}}", partial(self._respond_one, probe))
        return app

    async def _respond(self, probe: str, request: web.Request) -> web.Response:
        checks = self._checks[probe]
        excluded = set(request.query.getall("exclude", []))
        asked = [name for name in checks if name not in excluded]
        failures = dict(zip(asked, await asyncio.gather(*(_failure(checks[name]) for name in asked)), strict=True))
        failed = any(failures.values())
        if not failed and "verbose" not in request.query:
            return _text("ok")
        lines = [self._line(name, failures) for name in checks]
        unknown = sorted(excluded - set(checks))
        if unknown:
            matches = ",".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {matches}")
        lines.append(f"{probe} check {'failed' if failed else 'passed'}")
        return _text("".join(f"{line}\n" for line in lines), status=500 if failed else 200)

    def _line(self, name: str, failures: Mapping[str, str | None]) -> str:
        if name not in failures:
            return f"[+]{name} excluded: ok"
        if failures[name] is not None:
            return f"[-]{name} failed: {failures[name]}"
        note = self._notes[name]() if name in self._notes else None
        return f"[+]{name} ok: {note}" if note else f"[+]{name} ok"

    async def _respond_one(self, probe: str, request: web.Request) -> web.Response:
        check = self._checks[probe].get(request.match_info["name"])
        if check is None:
            return _text("404 page not found\n", status=404)
        failure = await _failure(check)
        return _text("ok") if failure is None else _text(f"internal server error: {failure}\n", status=500)


async def _failure(check: Checker) -> str | None:
    try:
        result = check()
        return await result if inspect.isawaitable(result) else result
    except Exception as error:
        # Of any part of the manager; a probe that answers 500 without a word helps nobody.
        return f"the check itself failed with {type(error).__name__}"


def _text(text: str, *, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text, headers=_HEADERS)


def metrics() -> web.Application:
    """Build the application of the metrics endpoint."""
    register_families()

    async def expose(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        parts: list[bytes] = []
        for family in REGISTRY.collect():
            parts.append(encode(_Alone(family)))
            await asyncio.sleep(0)
        ending = _END if parts and parts[-1].endswith(_END) else b""
        body = b"".join(part.removesuffix(ending) for part in parts) + ending
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application()
    app.add_routes([web.get("/metrics", expose)])
    return app


_END: Final = b"# EOF\n"
"""The last line of OpenMetrics."""


class _Alone(CollectorRegistry):
    """A registry of one family, as it was collected."""

    def __init__(self, family: Metric) -> None:
        super().__init__()
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
