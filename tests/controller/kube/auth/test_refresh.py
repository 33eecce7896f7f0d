"""Credentials that several requests, loops and threads want renewed at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.auth.refresh import REFRESH_PERIOD, RENEWAL_PAUSE, RefreshingCredentials
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError


class Numbered(RefreshingCredentials):
    """Credentials that count how often they were reloaded."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.reloads = 0
        self.entered = threading.Event()
        self.proceed = asyncio.Event()
        self.proceed.set()
        self.failing = False

    def _headers(self) -> Mapping[str, str]:
        return {"Number": str(self.reloads)}

    async def _reload(self) -> bool:
        self.entered.set()
        await self.proceed.wait()
        if self.failing:
            raise ConfigurationError("the file is gone")
        self.reloads += 1
        return True


@pytest.mark.guarantee("L-4")
async def test_a_reload_that_is_under_way_holds_up_no_other_request() -> None:
    """An identity provider that is slow to answer must not cost the election its lease: what we have is still good."""
    clock = VirtualClock()
    credentials = Numbered(clock)
    clock.step(REFRESH_PERIOD)
    credentials.proceed.clear()
    looking = asyncio.create_task(credentials.headers())
    await settle()
    others = [asyncio.create_task(credentials.headers()) for _ in range(10)]
    await settle()
    assert [other.result() for other in others] == [{"Number": "0"}] * 10
    credentials.proceed.set()
    assert await looking == {"Number": "1"}
    assert credentials.reloads == 1


async def test_refused_requests_wait_for_one_reload_that_is_under_way() -> None:
    credentials = Numbered(VirtualClock())
    credentials.proceed.clear()
    requests = [asyncio.create_task(credentials.renew()) for _ in range(10)]
    await settle()
    assert not any(request.done() for request in requests)
    credentials.proceed.set()
    assert await asyncio.gather(*requests) == [True] * 10
    assert credentials.reloads == 1


async def test_failed_reload_is_repeated_after_the_period_only() -> None:
    clock = VirtualClock()
    credentials = Numbered(clock)
    credentials.failing = True
    clock.step(REFRESH_PERIOD)
    assert await credentials.headers() == {"Number": "0"}
    credentials.failing = False
    assert await credentials.headers() == {"Number": "0"}
    clock.step(REFRESH_PERIOD)
    assert await credentials.headers() == {"Number": "1"}


async def test_refusals_in_a_row_do_not_reload_each_time() -> None:
    """A token that the server will never take must not run a plugin for each request."""
    clock = VirtualClock()
    credentials = Numbered(clock)
    assert await credentials.renew()
    assert not await credentials.renew()
    clock.step(RENEWAL_PAUSE)
    assert await credentials.renew()
    assert credentials.reloads == 2


async def test_reload_that_is_cancelled_leaves_the_way_free() -> None:
    clock = VirtualClock()
    credentials = Numbered(clock)
    credentials.proceed.clear()
    given_up = asyncio.create_task(credentials.renew())
    await settle()
    given_up.cancel()
    await settle()
    credentials.proceed.set()
    clock.step(RENEWAL_PAUSE)
    assert await credentials.renew()


async def test_two_threads_share_one_reload(clock: Any, until: Any) -> None:
    """The elector renews on its own loop with the credentials of the manager."""
    credentials = Numbered(clock)
    credentials.proceed.clear()
    ours = asyncio.create_task(credentials.renew())
    await until(credentials.entered.is_set)
    theirs = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(_renew(credentials))))
    await until(lambda: clock.slept)
    assert not theirs.done()
    credentials.proceed.set()
    assert await ours
    assert await theirs
    assert credentials.reloads == 1


async def _renew(credentials: RefreshingCredentials) -> bool:
    return await credentials.renew()
