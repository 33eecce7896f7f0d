"""The web page of a manager against the embedded API server: who gets to see what, and how they log in."""

import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.commands import eventually
from support.history import record
from support.installations import allow_listing, allow_url
from support.processes import account_token
from support.stack import Stack, api_server
from support.training import apply_runtime, runtime, trainjob
from support.virtualtime import VirtualClock
from support.web import web_page

from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.resources import NAMESPACES
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.web.login import LIFETIME, MOST, Sessions

CSP = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path, rbac=True) as stack:
        await apply_runtime(stack.client, runtime())
        for namespace in ("team", "other"):
            await stack.client.create(NAMESPACES, {"metadata": {"name": namespace}})
            job = trainjob(f"live-in-{namespace}")
            job["metadata"]["namespace"] = namespace
            await stack.client.create(TRAINJOBS, job)
        yield stack


@pytest.fixture
def file(tmp_path: Path) -> Path:
    store = sqlite_store(tmp_path / "history.sqlite")
    now = SystemClock().now()
    ended = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    store.write(
        [
            record(1, name="gone-from-team", namespace="team", ended=ended, result="Failed", cause="OutOfMemory"),
            record(2, name="gone-from-other", namespace="other", ended=ended),
        ],
        now=now,
    )
    store.close()
    return tmp_path / "history.sqlite"


Answer = tuple[int, str, Any]


async def send(method: str, url: str, **options: Any) -> Answer:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.request(method, url, allow_redirects=False, **options) as answer,
    ):
        return answer.status, await answer.text(), answer.headers


get, post = partial(send, "GET"), partial(send, "POST")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def jobs_of(page: str) -> set[str]:
    return set(re.findall(r'<a href="jobs/[^"]*">([^<]*)</a>', page))


async def account(stack: Stack, name: str, *, sees_page: bool = True, lists_in: str | None = None) -> str:
    """Create an account that may see the page, and list TrainJobs in a namespace, or in all for an empty one."""
    token = await account_token(stack.client, name)
    if sees_page:
        await allow_url(stack.client, name, "/web/")
    if lists_in is not None:
        await allow_listing(stack.client, name, namespace=lists_in)
    return token


async def test_live_and_ended_jobs_are_listed_and_each_has_a_page(stack: Stack, file: Path) -> None:
    async with web_page(stack.access, file) as url:
        status, page, headers = await get(url)
        everything = {"live-in-team", "live-in-other", "gone-from-team", "gone-from-other"}
        assert (status, jobs_of(page)) == (200, everything)
        assert headers["Content-Security-Policy"].startswith(CSP)
        assert (headers["X-Frame-Options"], headers["X-Content-Type-Options"]) == ("DENY", "nosniff")
        assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
        assert "Log out" not in page
        assert jobs_of((await get(f"{url}?namespace=team"))[1]) == {"live-in-team", "gone-from-team"}
        assert jobs_of((await get(f"{url}?state=Failed"))[1]) == {"gone-from-team"}
        assert jobs_of((await get(f"{url}?state=Waiting"))[1]) == {"live-in-team", "live-in-other"}
        assert (await get(f"{url}?state=Odd"))[0] == 400
        for path in set(re.findall(r'<a href="(jobs/[^"]*)">', page)):
            status, _, headers = await get(url + path)
            assert status == 200, path
            assert headers["Content-Security-Policy"].startswith(CSP)
        await stack.client.patch(TRAINJOBS, "team", "live-in-team", {"spec": {"suspend": True}})
        (live,) = re.findall(r'<a href="(jobs/team/[^"]*)">live-in-team', page)

        async def suspended() -> bool:
            return "Why: Suspended" in (await get(url + live))[1]

        await eventually(suspended)
        assert "TrainJob live-in-team: " in (await get(url + live))[1]
        assert "Why: OutOfMemory" in (await get(f"{url}jobs/team/TrainJob/gone-from-team/uid-0001"))[1]
        for path in ("jobs/team/TrainJob/none/none", "jobs/other/TrainJob/gone-from-team/uid-0001", "jobs/a/b/c/d"):
            assert (await get(url + path))[0] == 404
        assert (await get(url.removesuffix("/")))[0] == 308
        for name, kind in (("style.css", "text/css"), ("page.js", "text/javascript")):
            status, _, headers = await get(url + name)
            assert (status, headers["Content-Type"].partition(";")[0]) == (200, kind)
        assert (await get(f"{url}login"))[0] == 303, "nobody has to say who they are"


async def test_it_is_off_unless_switched_on_and_does_without_a_history(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with web_page(stack.access, None, enabled=False) as url:
        assert (await get(url))[0] == 404
    async with web_page(stack.access, None) as url:
        assert jobs_of((await get(url))[1]) == {"live-in-team", "live-in-other"}
    # A history that cannot be read costs what it would have shown.
    async with web_page(stack.access, tmp_path / "nowhere" / "history.sqlite") as url:
        status, page, _ = await get(url)
        assert (status, jobs_of(page)) == (200, {"live-in-team", "live-in-other"})
        assert "What has ended is not shown: the history in" in page
        (path,) = re.findall(r'<a href="(jobs/team/[^"]*)">', page)
        status, page, _ = await get(url + path)
        assert (status, "What was recorded of it is not shown" in page) == (200, True)
    # Many jobs are looked at little by little.
    monkeypatch.setattr("trainmaster.controller.web.jobs.MOST_LIVE", 1)
    async with web_page(stack.access, None) as url:
        page = (await get(url))[1]
        assert len(jobs_of(page)) == 1
        assert "Jobs of the cluster that were not looked at: 1." in page
        assert jobs_of((await get(f"{url}?namespace=team"))[1]) == {"live-in-team"}


async def test_everybody_sees_the_namespaces_in_which_they_may_list_trainjobs(stack: Stack, file: Path) -> None:
    admin, member = await account(stack, "admin", lists_in=""), await account(stack, "member", lists_in="team")
    nobody = await account(stack, "nobody")
    stranger = await account(stack, "stranger", lists_in="team", sees_page=False)
    async with web_page(stack.access, file, auth=True) as url:
        assert len(jobs_of((await get(url, headers=bearer(admin)))[1])) == 4
        status, page, _ = await get(url, headers=bearer(member))
        assert (status, jobs_of(page)) == (200, {"live-in-team", "gone-from-team"})
        assert "other" not in page
        assert "system:serviceaccount:default:member" in page
        assert jobs_of((await get(url, headers=bearer(nobody)))[1]) == set()
        status, page, _ = await get(f"{url}?namespace=other", headers=bearer(member))
        assert (status, "You may not list TrainJobs in namespace other" in page) == (403, True)
        elsewhere = f"{url}jobs/other/TrainJob/gone-from-other/uid-0002"
        assert (await get(elsewhere, headers=bearer(member)))[0] == 404
        assert (await get(elsewhere, headers=bearer(admin)))[0] == 200
        status, page, _ = await get(url, headers=bearer(stranger))
        assert (status, "You may not see this page" in page, "nonResourceURL" in page) == (403, True, True)
        status, page, headers = await get(url)
        assert (status, 'name="token"' in page) == (401, True)
        assert headers["Content-Security-Policy"].startswith(CSP)
        base = url.removesuffix("/web/")
        for path in ("/metrics", "/history/v1/jobs", "/web/../metrics", "/web/%2e%2e/metrics", "/web/nothing"):
            async with aiohttp.ClientSession() as session, session.get(f"{base}{path}") as answer:
                assert answer.status == 401, path


async def test_a_token_opens_a_session_that_can_be_closed(stack: Stack, file: Path) -> None:
    member = await account(stack, "member", lists_in="team")
    stranger = await account(stack, "stranger", sees_page=False)
    async with web_page(stack.access, file, auth=True) as url:
        status, _, headers = await post(f"{url}login", data={"token": f" {member}\n"})
        assert (status, headers["Location"]) == (303, "./")
        cookie = headers["Set-Cookie"]
        for part in ("HttpOnly", "Secure", "SameSite=Strict", "Max-Age=28800"):
            assert part in cookie
        assert "Path" not in cookie, "for the directory of the page and no other"
        assert member not in cookie
        session = {"Cookie": cookie.partition(";")[0]}
        status, page, _ = await get(url, headers=session)
        assert (status, jobs_of(page), "Log out" in page) == (200, {"live-in-team", "gone-from-team"}, True)
        assert (await get(url.replace("/web/", "/metrics"), headers=session))[0] == 401, "it opens nothing else"
        status, _, headers = await post(f"{url}logout", headers=session)
        assert (status, headers["Location"], "Max-Age=0" in headers["Set-Cookie"]) == (303, "login", True)
        status, page, _ = await get(url, headers=session)
        assert (status, "The session has ended" in page) == (401, True)

        for token, code, text in (
            ("", 400, "That is no token."),
            ("two words", 400, "That is no token."),
            ("ü", 400, "That is no token."),
            ("nonsense", 401, "The API server does not know this token"),
            ("x" * 20_000, 400, "That is no token."),
            ("x" * 200_000, 413, "too long"),
            (stranger, 403, "You may not see this page"),
        ):
            status, page, headers = await post(f"{url}login", data={"token": token})
            assert (status, text in page, "Set-Cookie" in headers) == (code, True, False), (token[:9], page)
        status, page, _ = await post(f"{url}login", data={"token": member}, headers={"Sec-Fetch-Site": "cross-site"})
        assert (status, "Another site has sent you here" in page) == (403, True)


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
