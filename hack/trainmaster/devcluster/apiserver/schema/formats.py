"""Formats and patterns of strings that a schema may name, checked as the API server checks them.

A format that is not listed here is not checked, which is also what the API server does with formats it does not know.

Patterns are RE2, as Kubernetes schemas use them, in Python's `re`. The two agree on most of what schemas contain. What
differs is translated: `$` and `\\z` mean the very end of the text, classes such as `\\d` are ASCII, and POSIX classes,
`\\Q...\\E`, `\\x{...}` and `(?<name>...)` exist. A pattern that RE2 understands and `re` does not (Unicode classes)
raises `re.error`.
"""

from __future__ import annotations

import base64
import binascii
import functools
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


_POSIX_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_TOKEN = re.compile(
    r"""
      \\Q(?P<literal>.*?)(?:\\E|\Z)
    | \\x\{(?P<code>[0-9A-Fa-f]{1,8})\}
    | (?P<end>\\z)
    | (?P<escape>\\.)
    | \[:(?P<posix>[a-z]+):\]
    | (?P<open>\[\^?\]?)
    | (?P<close>\])
    | (?P<dollar>\$)
    | (?P<group>\(\?<(?![=!]))
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


@functools.lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile an RE2 pattern; raises `re.error` where `re` has nothing like it."""
    multiline = re.match(r"\(\?[a-zA-Z]*m[a-zA-Z]*\)", pattern) is not None
    return re.compile(_translate(pattern, dollar="$" if multiline else r"\Z"), re.ASCII)


def _translate(pattern: str, *, dollar: str) -> str:
    translated: list[str] = []
    in_class = False
    for token in _TOKEN.finditer(pattern):
        text = token.group()
        match token.lastgroup:
            case "literal":
                text = re.escape(token["literal"])
            case "code":
                text = f"\\U{int(token['code'], 16):08X}"
            case "end":
                text = r"\Z"
            case "posix" if in_class and token["posix"] in _POSIX_CLASSES:
                text = _POSIX_CLASSES[token["posix"]]
            case "open" if in_class:
                text = text.replace("[", r"\[")
                in_class = not text.endswith("]")
            case "open":
                in_class = True
            case "close":
                in_class = False
            case "dollar" if not in_class:
                text = dollar
            case "group" if not in_class:
                text = "(?P<"
        translated.append(text)
    return "".join(translated)
