"""Library: the functions that Kubernetes adds to CEL, as plain functions on plain values.

| group    | functions |
|----------|-----------|
| lists    | isSorted, sum, min, max, indexOf, lastIndexOf |
| regex    | find, findAll |
| sets     | sets.contains, sets.equivalent, sets.intersects |
| quantity | isQuantity, quantity, isInteger, asInteger, asApproximateFloat, sign, add, sub, isLessThan, \
isGreaterThan, compareTo |
| semver   | isSemver, semver, major, minor, patch, isLessThan, isGreaterThan, compareTo |
| url      | isURL, url, getScheme, getHost, getHostname, getPort, getEscapedPath, getQuery |
| ip, cidr | isIP, ip, ip.isCanonical, family, isUnspecified, isLoopback, isLinkLocalUnicast, isLinkLocalMulticast, \
isGlobalUnicast, isCIDR, cidr, containsIP, containsCIDR, prefixLength, masked, ip |

Quantities, versions, URLs and addresses travel as maps with one key that names the type. Equal ones have equal maps.
Not here, and refused while compiling: `format.<name>()`, comprehensions with two variables, `string()` of an address.
A function raises ValueError with the message of the API server; a call that it does not understand is a TypeError.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from trainmaster.devcluster.apiserver.schema.formats import compile_pattern, parses_by
from trainmaster.runtime.quantity import Quantity, QuantityError

_QUANTITY, _SEMVER, _URL, _IP, _CIDR = (
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.URL",
    "net.IP",
    "net.CIDR",
)
_ONE = 10**9  # a quantity counts in nano units
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)

_LIST, _PAIR = ("list<dyn>",), ("dyn", "dyn")


@dataclass(frozen=True, slots=True)
class Function:
    """One function, or one of several with the same name, with the types of what it takes and gives."""

    name: str
    parameters: tuple[str, ...]
    result: str
    call: Callable[..., Any]
    is_method: bool = True


def _boxed(kind: str, value: Any) -> dict[str, Any]:
    return {kind: value}


def _unboxed(value: Any, *kinds: str) -> Any:
    """Take the content out of a value of one of these types."""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, content),) = value.items()
        if kind in kinds:
            return content
    raise TypeError(f"no such overload: expected {' or '.join(kinds)}")


# Lists.


def _is_sorted(items: list[Any]) -> bool:
    return all(left <= right for left, right in itertools.pairwise(items))


def _extreme(choose: Callable[[Iterable[Any]], Any], name: str) -> Callable[[list[Any]], Any]:
    def call(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return choose(items)

    return call


def _index_of(items: list[Any], wanted: Any) -> int:
    return next((index for index, item in enumerate(items) if item == wanted), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if items[index] == wanted), -1)


# Regular expressions.


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return compile_pattern(text)
    except re.error as error:
        raise ValueError(f"Illegal regex: {error}") from error


def _find(text: str, pattern: str) -> str:
    match = _pattern(pattern).search(text)
    return match.group() if match else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group() for match in _pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


# Quantities.


def _quantity(text: str) -> dict[str, Any]:
    try:
        return _boxed(_QUANTITY, str(Quantity.parse(text).nano))
    except QuantityError as error:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _nano(value: Any) -> int:
    return int(_unboxed(value, _QUANTITY))


def _operand(value: Any) -> int:
    return value * _ONE if isinstance(value, int) and not isinstance(value, bool) else _nano(value)


def _as_integer(value: Any) -> int:
    whole, rest = divmod(_nano(value), _ONE)
    if rest:
        raise ValueError("cannot convert value to integer")
    return whole


# Semantic versions.


def _version(text: str) -> tuple[Any, ...]:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"No valid semantic version: {text}")
    major, minor, patch, release = match.groups()
    parts = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in (release or "").split(".") if each)
    # A version before the release, 1.0.0-rc.1, comes before the release.
    return int(major), int(minor), int(patch), not parts, parts


def _semver(text: str) -> dict[str, Any]:
    _version(text)
    return _boxed(_SEMVER, text.partition("+")[0])


def _number(position: int) -> Callable[[Any], int]:
    return lambda value: int(_version(_unboxed(value, _SEMVER))[position])


def _compare(left: Any, right: Any) -> int:
    """Compare two quantities, or two versions."""
    if isinstance(left, dict) and _SEMVER in left:
        ours: Any = _version(_unboxed(left, _SEMVER))
        theirs: Any = _version(_unboxed(right, _SEMVER))
    else:
        ours, theirs = _nano(left), _nano(right)
    return int(ours > theirs) - int(ours < theirs)


# URLs.


def _url(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")) or re.search(r"[\s\x00-\x1f]", text):
        raise ValueError(f"URL parse error during conversion from string: {text}")
    _ = parts.port  # raises ValueError where it is no number
    return _boxed(_URL, text)


def _from_url(part: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: part(urlsplit(_unboxed(value, _URL)))


def _host(parts: Any) -> str:
    return str(parts.netloc).rpartition("@")[2]


def _port(parts: Any) -> str:
    return "" if parts.port is None else str(parts.port)


# Addresses.


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        read = ipaddress.ip_address(text)
    except ValueError as error:
        raise ValueError(f"IP Address {text!r} parse error during conversion from string") from error
    if isinstance(read, ipaddress.IPv6Address) and (read.ipv4_mapped or read.scope_id):
        raise ValueError(f"IP Address {text!r} parse error during conversion from string: not allowed in this form")
    return read


def _ip(text: Any) -> dict[str, Any]:
    if isinstance(text, dict):  # the address of a CIDR
        return _boxed(_IP, _unboxed(text, _CIDR).partition("/")[0])
    return _boxed(_IP, str(_address(text)))


def _from_ip(part: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: part(_address(_unboxed(value, _IP)))


def _network(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    problem = f"network address parse error during conversion from string: {text!r}"
    if not re.fullmatch(r"[^/]+/\d+", text, re.ASCII):
        raise ValueError(problem)
    try:
        return ipaddress.ip_interface(text)
    except ValueError as error:
        raise ValueError(problem) from error


def _cidr(text: str) -> dict[str, Any]:
    return _boxed(_CIDR, str(_network(text)))


def _contains_ip(block: Any, address: Any) -> bool:
    wanted = _address(address if isinstance(address, str) else _unboxed(address, _IP))
    return wanted in _network(_unboxed(block, _CIDR)).network


def _contains_cidr(block: Any, other: Any) -> bool:
    outer = _network(_unboxed(block, _CIDR)).network
    inner = _network(other if isinstance(other, str) else _unboxed(other, _CIDR)).network
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type] # of the same version


def _methods(result: str, calls: dict[str, Callable[..., Any]]) -> list[Function]:
    return [Function(name, ("dyn",), result, call) for name, call in calls.items()]


def _functions(result: str, calls: dict[str, Callable[..., Any]]) -> list[Function]:
    return [Function(name, ("string",), result, call, is_method=False) for name, call in calls.items()]


FUNCTIONS: tuple[Function, ...] = (
    Function("isSorted", _LIST, "bool", _is_sorted),
    Function("sum", _LIST, "dyn", sum),
    Function("min", _LIST, "dyn", _extreme(min, "min")),
    Function("max", _LIST, "dyn", _extreme(max, "max")),
    Function("indexOf", ("list<dyn>", "dyn"), "int", _index_of),
    Function("lastIndexOf", ("list<dyn>", "dyn"), "int", _last_index_of),
    Function("find", ("string", "string"), "string", _find),
    Function("findAll", ("string", "string"), "list<string>", _find_all),
    Function("findAll", ("string", "string", "int"), "list<string>", _find_all),
    Function("sets.contains", _LIST * 2, "bool", lambda a, b: all(each in a for each in b), is_method=False),
    Function(
        "sets.equivalent",
        _LIST * 2,
        "bool",
        lambda a, b: all(each in a for each in b) and all(each in b for each in a),
        is_method=False,
    ),
    Function("sets.intersects", _LIST * 2, "bool", lambda a, b: any(each in a for each in b), is_method=False),
    *_functions("dyn", {"quantity": _quantity, "semver": _semver, "url": _url, "ip": _ip, "cidr": _cidr}),
    *_functions(
        "bool",
        {
            "isQuantity": parses_by(_quantity),
            "isSemver": parses_by(_semver),
            "isURL": parses_by(_url),
            "isIP": parses_by(_ip),
            "isCIDR": parses_by(_cidr),
            "ip.isCanonical": lambda text: str(_address(text)) == text,
        },
    ),
    *_methods(
        "int",
        {
            "asInteger": _as_integer,
            "sign": lambda value: (_nano(value) > 0) - (_nano(value) < 0),
            "major": _number(0),
            "minor": _number(1),
            "patch": _number(2),
            "family": _from_ip(lambda address: address.version),
            "prefixLength": lambda value: _network(_unboxed(value, _CIDR)).network.prefixlen,
        },
    ),
    *_methods(
        "bool",
        {
            "isInteger": lambda value: not _nano(value) % _ONE,
            "isUnspecified": _from_ip(lambda address: address.is_unspecified),
            "isLoopback": _from_ip(lambda address: address.is_loopback),
            "isLinkLocalUnicast": _from_ip(lambda address: address.is_link_local),
            "isLinkLocalMulticast": _from_ip(
                lambda address: address in ipaddress.ip_network("224.0.0.0/24" if address.version == 4 else "ff02::/16")
            ),
            "isGlobalUnicast": _from_ip(
                lambda address: (
                    not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)
                    and str(address) != "255.255.255.255"
                )
            ),
        },
    ),
    *_methods(
        "string",
        {
            "getScheme": _from_url(lambda parts: parts.scheme),
            "getHost": _from_url(_host),
            "getHostname": _from_url(lambda parts: parts.hostname or ""),
            "getPort": _from_url(_port),
            "getEscapedPath": _from_url(lambda parts: quote(parts.path, safe="/%:@!$&'()*+,;=~-._")),
        },
    ),
    *_methods(
        "dyn",
        {
            "getQuery": _from_url(lambda parts: parse_qs(parts.query, keep_blank_values=True)),
            "masked": lambda value: _boxed(_CIDR, str(_network(_unboxed(value, _CIDR)).network)),
            "ip": _ip,
        },
    ),
    Function("asApproximateFloat", ("dyn",), "double", lambda value: _nano(value) / _ONE),
    Function("add", _PAIR, "dyn", lambda a, b: _boxed(_QUANTITY, str(_nano(a) + _operand(b)))),
    Function("sub", _PAIR, "dyn", lambda a, b: _boxed(_QUANTITY, str(_nano(a) - _operand(b)))),
    Function("compareTo", _PAIR, "int", _compare),
    Function("isLessThan", _PAIR, "bool", lambda a, b: _compare(a, b) < 0),
    Function("isGreaterThan", _PAIR, "bool", lambda a, b: _compare(a, b) > 0),
    Function("containsIP", _PAIR, "bool", _contains_ip),
    Function("containsCIDR", _PAIR, "bool", _contains_cidr),
)
"""The functions of Kubernetes."""
