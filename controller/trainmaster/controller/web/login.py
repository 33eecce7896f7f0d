"""Who looks at the page: by a token in a header, as proxies add it, or by the cookie of a session.

Guarantees:
- Nobody sees anything whom the API server does not authenticate and allow `get` of `/web/`; each request is checked
  anew, as those for metrics are, so that a token that is revoked opens nothing a minute later.
- The cookie is for this path only, for no script, for no other site, and for HTTPS (or this very machine).
- A log-in that another site begins is refused.
- The cookie is no token: it opens a session of this process and nothing else. The token is kept, encrypted by the
  cookie, which is not kept: neither of them alone is of use, and the token is checked again and again.
- There are so many sessions at most, each for so long; the oldest makes room.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from cachetools import TTLCache
from cryptography.fernet import Fernet, InvalidToken

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.server.filters import USER, DelegatingAuth, token_of
from trainmaster.controller.web.pages import login_page, refusal_page

LIFETIME: Final = 8 * 3600
"""Seconds."""

MOST: Final = 2000

PATH: Final = "/web/"
COOKIE: Final = "trainmaster-session"

_LONGEST_TOKEN: Final = 16 * 1024
_OURS: Final = frozenset({"same-origin", "none"})

Page = Callable[[web.Request], Awaitable[web.Response]]


class Sessions:
    """All sessions of this process."""

    def __init__(self, clock: Clock) -> None:
        self._tokens: TTLCache[bytes, bytes] = TTLCache(MOST, LIFETIME, timer=clock.monotonic)
        """Encrypted tokens by the digest of the cookie."""

    def open(self, token: str) -> str:
        """Begin a session for a token; returns the cookie."""
        key = Fernet.generate_key()
        self._tokens[_digest(key)] = Fernet(key).encrypt(token.encode())
        return key.decode()

    def token(self, cookie: str) -> str:
        """Return the token of a session; empty if there is none, or none any more."""
        try:
            key = cookie.encode("ascii")
            encrypted = self._tokens.get(_digest(key))
            return Fernet(key).decrypt(encrypted).decode() if encrypted is not None else ""
        except (ValueError, InvalidToken):
            return ""

    def close(self, cookie: str) -> None:
        """End a session."""
        self._tokens.pop(_digest(cookie.encode("utf-8", "replace")), None)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class Login:
    """Asks who somebody is, if that matters.

    Args:
        auth: Who asks the API server; None: everybody who gets here may see everything.
    """

    def __init__(self, auth: DelegatingAuth | None, *, clock: Clock) -> None:
        self._auth = auth
        self._sessions = Sessions(clock)

    def user(self, request: web.Request) -> str | None:
        """Return the name of whoever looks at a page; None where nobody is asked."""
        return None if self._auth is None else str(request[USER].get("username", ""))

    def required(self, page: Page) -> Page:
        """Make a page one for those who have said who they are; others get the one on which they can."""

        async def checked(request: web.Request) -> web.Response:
            refusal = await self._refusal(request, token_of(request) or self._session(request))
            return await page(request) if refusal is None else refusal

        return checked

    async def form(self, request: web.Request) -> web.Response:
        """Show the form."""
        if self._auth is None:
            raise web.HTTPSeeOther("./")
        return html(login_page(root_of(request)))

    async def log_in(self, request: web.Request) -> web.Response:
        """Take a token, and open a session for it."""
        if self._auth is None:
            raise web.HTTPSeeOther("./")
        if request.headers.get("Sec-Fetch-Site", "none") not in _OURS:
            return html(login_page("", problem="Another site has sent you here; log in on this page."), status=403)
        if (request.content_length or 0) > 2 * _LONGEST_TOKEN:
            return html(login_page("", problem="That is too long for a token."), status=413)
        given = (await request.post()).get("token", "")
        token = given.strip() if isinstance(given, str) else ""
        if not token or not token.isascii() or len(token) > _LONGEST_TOKEN or any(map(str.isspace, token)):
            return html(login_page("", problem="That is no token."), status=400)
        refusal = await self._auth.refusal(request, token, path=PATH, verb="get")
        if refusal is not None:
            return self._explained(
                request, refusal, problem="The API server does not know this token. Is it still good?"
            )
        answer = web.Response(status=303, headers={"Location": "./"})
        answer.set_cookie(
            COOKIE, self._sessions.open(token), max_age=LIFETIME, path="", secure=True, httponly=True, samesite="Strict"
        )
        return answer

    async def log_out(self, request: web.Request) -> web.Response:
        """End a session."""
        self._sessions.close(request.cookies.get(COOKIE, ""))
        answer = web.Response(status=303, headers={"Location": "login"})
        answer.set_cookie(COOKIE, "", max_age=0, path="", secure=True, httponly=True, samesite="Strict")
        return answer

    def _session(self, request: web.Request) -> str:
        return self._sessions.token(request.cookies.get(COOKIE, ""))

    async def _refusal(self, request: web.Request, token: str) -> web.Response | None:
        if self._auth is None:
            return None
        refusal = await self._auth.refusal(request, token, path=PATH, verb="get")
        if refusal is None:
            return None
        problem = "The session has ended, or its token is not good any more." if COOKIE in request.cookies else ""
        return self._explained(request, refusal, problem=problem)

    def _explained(self, request: web.Request, refusal: web.Response, *, problem: str) -> web.Response:
        """Return a refusal as a page that says what to do."""
        root = root_of(request)
        if refusal.status == 401:
            return html(login_page(root, problem=problem), status=401)
        if refusal.status == 403:
            page = refusal_page(
                root,
                title="You may not see this page",
                text=f"{(refusal.text or '').strip()}. An administrator can allow it: `get` of the nonResourceURL "
                f"{PATH} in a ClusterRole, bound to you (docs/web.md).",
                user=None,
            )
            return html(page, status=403)
        page = refusal_page(
            root,
            title="Who you are cannot be checked",
            text="The API server does not answer the manager, or the manager may not ask it. Try again in a moment; "
            "the log of the manager says more.",
            user=None,
        )
        return html(page, status=503)


def root_of(request: web.Request) -> str:
    """Return the way from a page to `/web/`."""
    return "../" * request.path.removeprefix(PATH).count("/")


def html(text: str, *, status: int = 200) -> web.Response:
    """Answer with a page."""
    return web.Response(status=status, text=text, content_type="text/html", charset="utf-8")
