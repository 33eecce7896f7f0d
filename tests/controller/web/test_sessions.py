"""Sessions: a cookie opens one, for a while, and nothing that is kept is a token."""

from __future__ import annotations

from support.virtualtime import VirtualClock

from trainmaster.controller.web.sessions import LIFETIME, MOST, Sessions

TOKEN = "eyJ.some.token"


async def test_a_cookie_opens_its_session_until_that_ends() -> None:
    clock = VirtualClock()
    sessions = Sessions(clock)
    cookie, other = sessions.open(TOKEN), sessions.open("another")
    assert (sessions.token(cookie), sessions.token(other)) == (TOKEN, "another")
    sessions.close(other)
    assert sessions.token(other) == ""
    await clock.advance(LIFETIME - 1)
    assert sessions.token(cookie) == TOKEN
    await clock.advance(2)
    assert sessions.token(cookie) == ""


async def test_a_cookie_that_is_none_opens_nothing_and_none_is_kept() -> None:
    sessions = Sessions(VirtualClock())
    sessions.open(TOKEN)
    for cookie in ("", "x", "ü" * 44, "A" * 44, "\ud800"):
        assert sessions.token(cookie) == ""
        sessions.close(cookie)
    # Neither token nor cookie is kept.
    sessions = Sessions(VirtualClock())
    cookie = sessions.open(TOKEN)
    kept = repr(dict(sessions._tokens))
    assert TOKEN not in kept
    assert cookie not in kept
    assert cookie != sessions.open(TOKEN)


async def test_there_are_so_many_sessions_at_most() -> None:
    sessions = Sessions(VirtualClock())
    first = sessions.open(TOKEN)
    for _ in range(MOST):
        last = sessions.open(TOKEN)
    assert len(sessions._tokens) == MOST
    assert (sessions.token(first), sessions.token(last)) == ("", TOKEN)
