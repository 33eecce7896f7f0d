"""Names, times and durations as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from trainmaster.devcluster.apiserver.registry import names
from trainmaster.devcluster.apiserver.registry.times import age, human_duration, timestamp


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (19920, "5h32m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (176400, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (731 * 86400, "2y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_durations_for_people(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_times_are_written_in_utc() -> None:
    moment = datetime(2026, 1, 1, 1, 0, 0, 999999, tzinfo=timezone(timedelta(hours=2)))
    assert timestamp(moment) == "2025-12-31T23:00:00Z"
    assert age("2025-12-31T23:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)) == "60m"
    assert age(None, moment) == "<unknown>"
