"""String formats that a schema may name, checked as the API server checks them.

A format that is not listed here is not checked, which is also what the API server does with formats it does not know.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime

_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DURATION = re.compile(
    r"[+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h|d|w)((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))*", re.ASCII
)
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_MAC = re.compile(r"[0-9a-f]{2}([:-][0-9a-f]{2}){5}", re.ASCII | re.IGNORECASE)
_HOSTNAME = re.compile(
    r"(?=.{1,255}\Z)[0-9a-z]([0-9a-z-]{0,61}[0-9a-z])?(\.[0-9a-z]([0-9a-z-]{0,61}[0-9a-z])?)*\.?",
    re.ASCII | re.IGNORECASE,
)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_URI = re.compile(r"([a-z][a-z0-9+.-]*:\S+|/\S*)", re.ASCII | re.IGNORECASE)


def matches(format_name: str, text: str) -> bool:
    """Return whether a text has this format; an unknown format fits every text."""
    check = _CHECKS.get(format_name)
    return check is None or check(text)


def parses_by(parse: Callable[[str], object]) -> Callable[[str], bool]:
    """Make the check that a function which raises ValueError can read a text."""

    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _matching(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _parse_date_time(text: str) -> None:
    if not _DATE_TIME.fullmatch(text):
        raise ValueError(text)
    datetime.fromisoformat(text[:19].replace("t", "T"))


def _parse_date(text: str) -> None:
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    date.fromisoformat(text)


def _parse_base64(text: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(text) from error


def _parse_cidr(text: str) -> None:
    if "/" not in text:
        raise ValueError(text)
    ipaddress.ip_network(text, strict=False)


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "byte": parses_by(_parse_base64),
    "cidr": parses_by(_parse_cidr),
    "date": parses_by(_parse_date),
    "date-time": parses_by(_parse_date_time),
    "datetime": parses_by(_parse_date_time),
    "duration": _matching(_DURATION),
    "email": _matching(_EMAIL),
    "hostname": _matching(_HOSTNAME),
    "ipv4": parses_by(ipaddress.IPv4Address),
    "ipv6": parses_by(ipaddress.IPv6Address),
    "mac": _matching(_MAC),
    "uri": _matching(_URI),
    "uuid": _matching(_UUID),
}
