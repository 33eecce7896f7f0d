"""Rules of names."""

from __future__ import annotations

import pytest

from trainmaster.runtime import names


@pytest.mark.parametrize("name", ["a", "a-b", "a.b-c", "1a", "x" * 253])
def test_good_subdomains(name: str) -> None:
    assert names.dns_subdomain(name) == []


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a.", "a..b", "a\n", "é", "x" * 254])
def test_bad_subdomains(name: str) -> None:
    assert names.dns_subdomain(name)


@pytest.mark.parametrize(("name", "good"), [("1a", False), ("a1", True), ("a.b", False), ("x" * 64, False)])
def test_service_names(name: str, good: bool) -> None:
    assert (names.dns_label_1035(name) == []) is good


@pytest.mark.parametrize(
    ("key", "good"),
    [
        ("app", True),
        ("example.com/App_1.x", True),
        ("", False),
        ("/x", False),
        ("a/b/c", False),
        ("Example.com/x", False),
        ("example.com/", False),
        ("x" * 64, False),
        ("-x", False),
    ],
)
def test_label_keys(key: str, good: bool) -> None:
    assert (names.qualified_name(key) == []) is good


@pytest.mark.parametrize(
    ("value", "good"), [("", True), ("a_B.1", True), ("a b", False), ("a-", False), ("x" * 64, False)]
)
def test_label_values(value: str, good: bool) -> None:
    assert (names.label_value(value) == []) is good


@pytest.mark.parametrize(("name", "good"), [("system:node", True), ("a/b", False), ("..", False), ("a%b", False)])
def test_role_names(name: str, good: bool) -> None:
    assert (names.path_segment(name) == []) is good
