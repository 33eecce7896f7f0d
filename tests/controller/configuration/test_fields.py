"""Values as Go writes them."""

from __future__ import annotations

import pytest

from trainmaster.controller.configuration import parse_address, seconds


@pytest.mark.parametrize(("text", "expected"), [("15s", 15), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400)])
def test_go_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


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
