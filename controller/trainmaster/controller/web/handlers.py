"""The web page, below `/web/`, where metrics are served.

    /web/                               jobs: live ones, and those of the history
    /web/jobs/NAMESPACE/KIND/NAME/UID   one job
    /web/login, /web/logout             sessions of browsers

Guarantees:
- It shows and changes nothing. Only jobs of namespaces are shown in which whoever asks may list TrainJobs; of others
  nobody learns that they exist.
- Nothing of it comes from elsewhere, and no script runs but its own (Content-Security-Policy); it can be in no frame.
- A history that cannot be read costs what it would have shown, and is told of.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from trainmaster.controller.explain.state import WORDS
from trainmaster.controller.history.handlers import MAX_NAMESPACES, NamespaceAccess, TooManyNamespaces
from trainmaster.controller.history.store import HistoryUnavailable
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.server.filters import DelegatingAuth
from trainmaster.controller.web.jobs import Jobs
from trainmaster.controller.web.login import PATH, Login, Page, html, root_of
from trainmaster.controller.web.pages import job_page, list_page, refusal_page

log = structlog.get_logger(__name__)

_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {"style.css": "text/css", "page.js": "text/javascript"}
_LONGEST: Final = 253

_HEADERS: Final = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
)


def add_web_handlers(app: web.Application, jobs: Jobs, auth: DelegatingAuth | None, *, clock: Clock) -> None:
    """Add the pages to an application.

    Args:
        auth: Who asks the API server whose token it is; None: nobody is asked.
    """
    login, access = Login(auth, clock=clock), NamespaceAccess(auth)
    if auth is not None:
        auth.exempt.append(PATH)

    async def listing(request: web.Request) -> web.Response:
        namespace, state = request.query.get("namespace", ""), request.query.get("state", "")
        user = login.user(request)
        if (state and state not in WORDS) or len(namespace) > _LONGEST:
            return html(_absent("", f"There is no state {state!r}, or no such namespace.", user), status=400)
        notice, namespaces = "", list[str]()
        try:
            namespaces = await jobs.namespaces()
        except HistoryUnavailable as error:
            notice = f"What has ended is not shown: {error}"
        visible = None
        if not await access.sees_all(request):
            visible = namespaces = await access.visible(request, namespaces)
        if namespace:
            if not await access.sees(request, namespace):
                text = f"You may not list TrainJobs in namespace {namespace}, so nothing of it is shown."
                return html(refusal_page("", title="Not yours to see", text=text, user=user), status=403)
            visible = [namespace]
        found = await jobs.listing(visible, state, recorded=not notice)
        page = list_page(found, namespaces=namespaces, namespace=namespace, state=state, user=user, notice=notice)
        return html(page)

    async def job(request: web.Request) -> web.Response:
        kind, namespace, name, uid = (request.match_info[each] for each in ("kind", "namespace", "name", "uid"))
        user, shown, notice = login.user(request), None, ""
        if max(map(len, (kind, namespace, name, uid))) <= _LONGEST and await access.sees(request, namespace):
            try:
                shown = await jobs.job(kind, namespace, name, uid)
            except HistoryUnavailable as error:
                notice = f"What was recorded of it is not shown: {error}"
                shown = await jobs.job(kind, namespace, name, uid, recorded=False)
        if shown is None:
            text = "There is no such job, or none that is recorded, in a namespace that you may see."
            return html(_absent(root_of(request), f"{text} {notice}".strip(), user), status=404)
        return html(job_page(shown, user=user, notice=notice))

    async def away(_: web.Request) -> web.Response:
        raise web.HTTPPermanentRedirect(PATH)

    app.add_routes(
        [
            web.get("/web", away),
            web.get(PATH, _safe(login.required(listing))),
            web.get(PATH + "jobs/{namespace}/{kind}/{name}/{uid}", _safe(login.required(job))),
            web.get(PATH + "login", _safe(login.form)),
            web.post(PATH + "login", _safe(login.log_in)),
            web.post(PATH + "logout", _safe(login.log_out)),
            *(web.get(PATH + name, _safe(_static(name))) for name in _TYPES),
        ]
    )


def _absent(root: str, text: str, user: str | None) -> str:
    return refusal_page(root, title="Nothing to see here", text=text, user=user)


def _static(name: str) -> Page:
    body = (_STATIC / name).read_bytes()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=_TYPES[name], charset="utf-8")

    return answer


def _safe(page: Page) -> Handler:
    """Make a page say what went wrong in words, and nobody else use it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            response = await page(request)
        except TooManyNamespaces:
            text = f"There are more than {MAX_NAMESPACES} namespaces with jobs; add ?namespace=NAME to the address."
            response = html(refusal_page(root_of(request), title="Name a namespace", text=text, user=None), status=403)
        except (KubeError, TimeoutError) as error:
            log.warning("what somebody may see of the web page cannot be checked", error=str(error))
            text = "What you may see cannot be checked at present: the API server does not answer. Try again."
            response = html(refusal_page(root_of(request), title="Try again", text=text, user=None), status=503)
        response.headers.update(_HEADERS)
        return response

    return answer
