"""The one HTTP(S) server: addresses, and how it is without TLS."""

from __future__ import annotations

import pytest
from aiohttp import web
from support.http import listening

from trainmaster.controller.server.server import AddressInUse, parse_address


async def test_an_address_in_use_is_named() -> None:
    async with listening(web.Application()) as port:
        with pytest.raises(AddressInUse, match=rf"cannot serve probes on 127\.0\.0\.1:{port}: .*configuration"):
            async with listening(web.Application(), f"127.0.0.1:{port}", purpose="probes"):
                pass


@pytest.mark.parametrize(
    ("address", "parsed"),
    [(":8443", (None, 8443)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9", ("::1", 9))],
)
def test_addresses_as_go_writes_them(address: str, parsed: tuple[str | None, int]) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize("address", ["8443", ":http", ":70000", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must be host:port or :port"):
        parse_address(address)
