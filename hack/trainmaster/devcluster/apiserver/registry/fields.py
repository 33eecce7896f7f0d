"""Rules of single fields that several rooms share: names, numbers, addresses, paths, and one value of a few."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError, unsupported
from trainmaster.runtime.names import NameRule, dns_label, dns_subdomain

_PORT_NAME_LENGTH = 15
_PORT_CHARACTERS = re.compile("[-a-z0-9]+")
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_CONFIG_KEY_LENGTH = 253


def invalid(path: str, value: Any, problems: Iterable[str]) -> Iterator[FieldError]:
    """Give an error for everything that is wrong with a value."""
    for problem in problems:
        yield FieldError(path, "Invalid", value, problem)


def required(path: str, detail: str = "") -> FieldError:
    """Return the error of a missing value."""
    return FieldError(path, "Required", detail=detail)


def forbidden(path: str, detail: str) -> FieldError:
    """Return the error of a value that may not be there."""
    return FieldError(path, "Forbidden", detail=detail)


def one_of(path: str, value: Any, supported: Collection[str]) -> Iterator[FieldError]:
    """Check that a value is one of a few, which the error lists in the given order."""
    if value not in supported:
        yield unsupported(path, value, supported)


def needs(obj: dict[str, Any], path: str, *fields: str) -> Iterator[FieldError]:
    """Check that fields are there and not empty."""
    for field in fields:
        if not obj.get(field):
            yield required(f"{path}.{field}")


def between(path: str, value: int, least: int, most: int) -> Iterator[FieldError]:
    """Check that a number is in a range that includes its ends."""
    if not least <= value <= most:
        yield FieldError(path, "Invalid", value, f"must be between {least} and {most}, inclusive")


def not_negative(path: str, value: int) -> Iterator[FieldError]:
    """Check that a number is zero or more."""
    if value < 0:
        yield FieldError(path, "Invalid", value, "must be greater than or equal to 0")


def label(path: str, value: str) -> Iterator[FieldError]:
    """Check a DNS label."""
    return invalid(path, value, dns_label(value))


def subdomain(path: str, value: str) -> Iterator[FieldError]:
    """Check a DNS subdomain."""
    return invalid(path, value, dns_subdomain(value))


def optional_name(obj: dict[str, Any], path: str, field: str, rule: NameRule = dns_subdomain) -> Iterator[FieldError]:
    """Check a name that may be left out or empty."""
    if value := obj.get(field):
        yield from invalid(f"{path}.{field}", value, rule(value))


def port_number(path: str, value: int) -> Iterator[FieldError]:
    """Check the number of a port."""
    return between(path, value, 1, 65535)


def port_name_problems(name: str) -> list[str]:
    """Return what is wrong with the name of a port (RFC 6335)."""
    problems = []
    if len(name) > _PORT_NAME_LENGTH:
        problems.append(f"must be no more than {_PORT_NAME_LENGTH} characters")
    if not _PORT_CHARACTERS.fullmatch(name):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name[:1] == "-" or name[-1:] == "-":
        problems.append("must not begin or end with a hyphen")
    return problems


def port(path: str, value: int | str) -> Iterator[FieldError]:
    """Check a port that is given by its number or its name."""
    if isinstance(value, str):
        yield from invalid(path, value, port_name_problems(value))
    else:
        yield from port_number(path, int(value))


def environment_name_problems(name: str) -> list[str]:
    """Return what is wrong with the name of an environment variable."""
    if not name:
        return ["environment variable name must be non-empty"]
    if any(not " " <= character <= "~" or character == "=" for character in name):
        return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]
    return []


def config_key_problems(key: str) -> list[str]:
    """Return what is wrong with a key of a ConfigMap or Secret."""
    problems = []
    if len(key) > _CONFIG_KEY_LENGTH:
        problems.append(f"must be no more than {_CONFIG_KEY_LENGTH} characters")
    if not re.fullmatch(_CONFIG_KEY, key):
        problems.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
            " (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name',"
            f" regex used for validation is '{_CONFIG_KEY}')"
        )
    if key in (".", ".."):
        problems.append(f"must not be '{key}'")
    elif key.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def address(path: str, value: str) -> Iterator[FieldError]:
    """Check an IP address; numbers of version 4 may begin with zeros."""
    if parse_address(value) is None:
        yield FieldError(path, "Invalid", value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")


def parse_address(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a text stands for, if it is one."""
    if "%" in value:
        return None
    try:
        return ipaddress.ip_address(re.sub(r"(^|\.)0+(?=\d)", r"\1", value) if ":" not in value else value)
    except ValueError:
        return None


def no_backsteps(path: str, value: str) -> Iterator[FieldError]:
    """Check that a path does not lead upwards."""
    if ".." in value.split("/"):
        yield FieldError(path, "Invalid", value, "must not contain '..'")


def descending_path(path: str, value: str) -> Iterator[FieldError]:
    """Check that a path is relative and does not lead upwards."""
    if value.startswith("/"):
        yield FieldError(path, "Invalid", value, "must be a relative path")
    yield from no_backsteps(path, value)


def local_path(path: str, value: str) -> Iterator[FieldError]:
    """Check the path of a file in a volume: names that begin with two dots belong to the kubelet."""
    yield from descending_path(path, value)
    if value.startswith("..") and not value.startswith("../"):
        yield FieldError(path, "Invalid", value, "must not start with '..'")
